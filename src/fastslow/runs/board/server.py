"""The board over HTTP: it only reads, and only what views.py offers. What changed in the run folders is noticed once for all
viewers, and only while somebody looks."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fastslow.base.errors import cause
from fastslow.runs.board.index import Filter
from fastslow.runs.board.page import FILES, live_page, static_file
from fastslow.runs.board.views import NotFound, RunViews, Views

T = TypeVar("T")
COOKIE = "fastslow-board"
EVERY = 0.8
"""Seconds between two looks at the folders."""
QUIET = 15.0
"""Seconds after which a comment is sent, so that a broken connection is noticed."""
WAITING = 50
"""Events that wait for a viewer at most."""
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}

DOWNLOADED = {".jsonl": "application/x-ndjson", ".csv": "text/csv; charset=utf-8"}


def make_app(
    views: Views, hosts: Sequence[str] = ("127.0.0.1", "localhost", "[::1]"), token: str | None = None
) -> Starlette:
    """The application. `hosts` are the names it answers to, against pages elsewhere that point a name at this machine;
    with a `token`, every request must carry it."""
    watch = Watch(views)

    def of_run(read: Callable[[RunViews, _Asked], bytes | Iterator[bytes]]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            asked = _Asked(request.query_params)
            try:
                found = read(views[asked.text("run")], asked)
                return _json(found) if isinstance(found, bytes) else _download(request, found)
            except NotFound as error:
                return PlainTextResponse(str(error), 404)
            except HTTPException:
                raise
            except Exception as error:  # what is wrong with one run must not look like a fault of the board
                return PlainTextResponse(f"this part of the run cannot be shown: {cause(error)}", 422)

        return endpoint

    def difference(run: RunViews, asked: _Asked) -> bytes:
        other = views[asked.text("other")] if asked.text("other") else run
        return run.difference(asked.text("id"), other, asked.text("against"))

    async def events(request: Request) -> Response:
        return StreamingResponse(watch.events(), media_type="text/event-stream")

    routes = [
        Route("/", lambda request: Response(live_page(), media_type="text/html")),
        *(Route(f"/static/{name}", _static) for name in FILES),
        Route("/api/runs", lambda request: _json(views.runs())),
        Route("/api/events", events),
        *(Route(f"/api/{name}", of_run(read)) for name, read in READ.items()),
        Route("/api/difference", of_run(difference)),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    return Starlette(routes=routes, middleware=[trusted, Middleware(_Guard, token=token)])


def warm_up() -> None:
    """Import what the first look at rollouts needs, so that nobody waits for it."""
    import pyarrow.parquet  # noqa: F401


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Asked:
    def __init__(self, query: Mapping[str, str]) -> None:
        self.query = query

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, default)

    def number(self, name: str, kind: Callable[[str], T]) -> T | None:
        text = self.text(name)
        try:
            return kind(text) if text else None
        except ValueError:
            raise HTTPException(400, f"{name}={text}: expected a number") from None

    def whole(self, name: str) -> int | None:
        return self.number(name, int)

    def filter(self) -> Filter:
        texts = {name: self.text(name) for name in ("problem", "context", "fault", "purpose", "words")}
        low, high = self.number("low", float), self.number("high", float)
        return Filter(self.whole("from"), self.whole("to"), low, high, **texts)


READ: dict[str, Callable[[RunViews, _Asked], bytes | Iterator[bytes]]] = {
    "run": lambda run, _: run.run(),
    "curves": lambda run, _: run.curves(),
    "spending": lambda run, _: run.spending(),
    "text": lambda run, _: run.text(),
    "matrix": lambda run, asked: run.matrix(asked.whole("cycle")),
    "context": lambda run, asked: run.context(asked.text("id")),
    "rollouts": lambda run, asked: run.rollouts(
        asked.filter(),
        asked.text("sort", "newest"),
        asked.text("order", "down") == "down",
        asked.whole("offset") or 0,
        asked.whole("limit") or 50,
    ),
    "rollouts.jsonl": lambda run, asked: run.download(asked.filter(), "jsonl"),
    "rollouts.csv": lambda run, asked: run.download(asked.filter(), "csv"),
    "rollout": lambda run, asked: run.rollout(asked.text("file"), asked.whole("row") or 0),
    "group": lambda run, asked: run.group(asked.text("file"), asked.text("example")),
}


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _download(request: Request, parts: Iterator[bytes]) -> Response:
    kind = DOWNLOADED[PurePosixPath(request.url.path).suffix]
    return StreamingResponse(parts, headers={"content-type": kind, "content-disposition": "attachment"})


def _static(request: Request) -> Response:
    body, kind = static_file(request.url.path.removeprefix("/static/"))
    return Response(body, media_type=kind)


class _Guard:
    """Adds the security headers to every answer, and asks for the token, if there is one: once in the address, then in a
    cookie that scripts cannot read."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            await send(message)

        asks = self.token is not None and scope["type"] == "http"
        await (self._answer(Request(scope), self.token or "") if asks else self.app)(scope, receive, with_headers)

    def _answer(self, request: Request, token: str) -> ASGIApp:
        def right(given: str) -> bool:
            return hmac.compare_digest(given.encode(), token.encode())

        if right(request.query_params.get("token", "")):
            rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
            redirect = RedirectResponse(request.url.path + (f"?{urlencode(rest)}" if rest else ""), 303)
            redirect.set_cookie(COOKIE, token, httponly=True, samesite="strict")
            return redirect
        if right(request.cookies.get(COOKIE, "")):
            return self.app
        return PlainTextResponse("open the address with ?token=… that `fastslow board` printed", 401)


class Watch:
    """Sends `change` events: which parts of which runs are new."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self.viewers: set[asyncio.Queue[str]] = set()
        self._task: asyncio.Task[None] | None = None

    async def events(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self.viewers.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield "retry: 1000\nevent: hello\ndata: {}\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), QUIET)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self.viewers.discard(queue)

    async def _look(self) -> None:
        before = await asyncio.to_thread(self._versions)
        while self.viewers:
            await asyncio.sleep(EVERY)
            now = await asyncio.to_thread(self._versions)
            if changed := differences(before, now):
                event = f"event: change\ndata: {json.dumps(changed)}\n\n"
                for queue in self.viewers:
                    if not queue.full():  # a viewer that sleeps finds out with its next fetch
                        queue.put_nowait(event)
            before = now

    def _versions(self) -> dict[str, dict[str, Any]]:
        return {name: run.version() for name, run in self.views.find().items()}


def differences(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The changed parts by run; a run that is new or gone has all parts changed."""
    changed = {}
    for name in {**before, **now}:
        old, new = before.get(name, {}), now.get(name, {})
        parts = [part for part in {**old, **new} if old.get(part) != new.get(part)]
        if parts:
            changed[name] = parts
    return changed
