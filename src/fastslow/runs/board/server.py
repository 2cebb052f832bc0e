"""The board over HTTP: it only reads, and only what views.py offers."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fastslow.runs.board.index import Filter
from fastslow.runs.board.page import FILES, live_page, static_file
from fastslow.runs.board.views import NotFound, RunViews, Views
from fastslow.runs.board.watch import Watch

T = TypeVar("T")
COOKIE = "fastslow-board"
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def make_app(
    views: Views, hosts: Sequence[str] = ("127.0.0.1", "localhost", "[::1]"), token: str | None = None
) -> Starlette:
    """The application. `hosts` are the names it answers to, against pages elsewhere that point a name at this machine;
    with a `token`, every request must carry it."""
    watch = Watch(views)

    def of_run(read: Callable[[RunViews, _Asked], bytes]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            asked = _Asked(request.query_params)
            try:
                return _json(read(views[asked.text("run")], asked))
            except NotFound as error:
                return PlainTextResponse(str(error), 404)
            except _BadNumber as error:
                return PlainTextResponse(str(error), 400)

        return endpoint

    async def events(request: Request) -> Response:
        return StreamingResponse(watch.events(), media_type="text/event-stream")

    routes = [
        Route("/", lambda request: Response(live_page(), media_type="text/html")),
        *(Route(f"/static/{name}", _static) for name in FILES),
        Route("/api/runs", lambda request: _json(views.runs())),
        Route("/api/events", events),
        *(Route(f"/api/{name}", of_run(read)) for name, read in READ.items()),
    ]
    middleware = [
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
        Middleware(_Headers),
    ]
    if token is not None:
        middleware.append(Middleware(_Token, token=token))
    app = Starlette(routes=routes, middleware=middleware)
    app.state.watch = watch
    return app


def warm_up() -> None:
    """Import what the first look at rollouts needs, so that nobody waits for it."""
    import pyarrow.parquet  # noqa: F401


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _BadNumber(Exception):
    pass


class _Asked:
    """The query of a request."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.query = query

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, default)

    def whole(self, name: str) -> int | None:
        return self._number(name, int)

    def real(self, name: str) -> float | None:
        return self._number(name, float)

    def _number(self, name: str, kind: Callable[[str], T]) -> T | None:
        text = self.text(name)
        try:
            return kind(text) if text else None
        except ValueError:
            raise _BadNumber(f"{name}={text}: expected a number") from None

    def filter(self) -> Filter:
        texts = {name: self.text(name) for name in ("problem", "context", "fault", "purpose")}
        return Filter(self.whole("from"), self.whole("to"), self.real("low"), self.real("high"), **texts)


READ: dict[str, Callable[[RunViews, _Asked], bytes]] = {
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
    "rollout": lambda run, asked: run.rollout(asked.text("file"), asked.whole("row") or 0),
    "group": lambda run, asked: run.group(asked.text("file"), asked.text("example")),
}


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _static(request: Request) -> Response:
    body, kind = static_file(request.url.path.removeprefix("/static/"))
    return Response(body, media_type=kind)


class _Headers:
    """Adds the security headers to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(key.encode(), value.encode()) for key, value in HEADERS.items()]
            await send(message)

        await self.app(scope, receive, with_headers)


class _Token:
    """Asks for the token: once in the address, then in a cookie that scripts cannot read."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        response: ASGIApp = self.app
        given = request.query_params.get("token")
        if given is not None and self._right(given):
            rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
            redirect = RedirectResponse(request.url.path + (f"?{urlencode(rest)}" if rest else ""), 303)
            redirect.set_cookie(COOKIE, self.token, httponly=True, samesite="strict")
            response = redirect
        elif not self._right(request.cookies.get(COOKIE, "")):
            response = PlainTextResponse("open the address with ?token=… that `fastslow board` printed", 401)
        await response(scope, receive, send)

    def _right(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())
