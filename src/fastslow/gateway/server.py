"""The address over HTTP.

In a run every rollout has a path of its own and a key that opens nothing else. Both die with it. The server has a thread and
an event loop of its own, so that neither agents nor rollouts can block it. What is asked runs on the rollout's loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import hashlib
import hmac
import json
import os
import resource
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from fastslow.base.errors import FastSlowError
from fastslow.base.text import one_line
from fastslow.gateway import chat_completions, messages, responses
from fastslow.gateway.session import Refused, Said, Session, Wanted

LARGEST = 8 * 2**20
"""Bytes of a request."""
_MOST_FILES = 65_536
SHAPES: dict[str, tuple[type[Any], Callable[[Refused], dict[str, Any]]]] = {
    "/v1/chat/completions": (chat_completions.Body, chat_completions.error_body),
    "/v1/responses": (responses.Body, chat_completions.error_body),
    "/v1/messages": (messages.Body, messages.error_body),
}
"""What is read of a request, and how its errors look, by path."""


@dataclass
class Door:
    """A session that can be reached, and the loop on which it is asked."""

    session: Session
    loop: asyncio.AbstractEventLoop
    open: bool = True
    _asking: set[concurrent.futures.Future[list[Said]]] = field(default_factory=set)

    async def answers(self, wanted: Wanted) -> list[Said]:
        if not self.open:
            raise _gone()
        asking = asyncio.run_coroutine_threadsafe(self.session.answers(wanted), self.loop)
        self._asking.add(asking)
        if not self.open:  # closed meanwhile, without knowing of it
            asking.cancel()
        try:
            return await asyncio.wrap_future(asking)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task and task.cancelling():
                raise
            raise _gone() from None
        finally:
            self._asking.discard(asking)

    def close(self) -> None:
        """Refuse what is still asked, and what will be."""
        self.open = False
        for asking in list(self._asking):
            asking.cancel()


def make_app(find: Callable[[Request], Door], prefix: str = "", more: Sequence[Route] = ()) -> Starlette:
    """The application, with more routes; `find` returns what a request may reach, or refuses it."""

    def endpoint(path: str) -> Callable[[Request], Any]:
        shape, error_body = SHAPES[path]

        async def answer(request: Request) -> Response:
            try:
                door = find(request)
                body = _checked(shape, await _read(request))
                wanted = body.wanted(door.session)
                said = await _while_connected(request, door, wanted)
            except Refused as error:
                return _json(error_body(error), error.status)
            except ClientDisconnect:
                return Response(status_code=499)
            except RecursionError:
                return _json(error_body(Refused(400, "invalid_request", "the request is nested too deeply")), 400)
            except Exception as error:
                status, words = (
                    (503, one_line(error)) if isinstance(error, FastSlowError) else (500, type(error).__name__)
                )
                return _json(error_body(Refused(status, "failed", f"the policy cannot answer: {words}")), status)
            if not body.stream:
                return _json(body.response(said, door.session, wanted))
            return StreamingResponse(body.events(said, door.session, wanted), media_type="text/event-stream")

        return answer

    async def models(request: Request) -> Response:
        name = request.path_params.get("name")
        try:
            session = find(request).session
            if name is not None:
                session.component(name)  # refuses a name that stands for none
        except Refused as error:
            return _json(chat_completions.error_body(error), error.status)
        listed = [
            {"id": each, "object": "model", "created": 0, "owned_by": "fastslow"}
            for each in (session.models if name is None else [name])
        ]
        return _json({"object": "list", "data": listed, "has_more": False} if name is None else listed[0])

    async def nothing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        words = f"there is no {request.method} {request.url.path}; there are {', '.join(SHAPES)} and /v1/models"
        return _json(chat_completions.error_body(Refused(status, "not_found", words)), status)

    routes = [Route(prefix + path, endpoint(path), methods=["POST"]) for path in SHAPES]
    handlers = {404: nothing, 405: nothing}
    routes += [Route(f"{prefix}/v1/models{one}", models) for one in ("", "/{name:path}")]
    return Starlette(routes=[*routes, *more], exception_handlers=handlers)


def given_key(request: Request) -> str:
    """The key of a request, as OpenAI's or Anthropic's clients send it."""
    return request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ").strip()


def require_key(request: Request, right: str) -> None:
    if not hmac.compare_digest(given_key(request).encode(), right.encode()):
        raise Refused(401, "invalid_api_key", "the key is not the one of this address")


def listen(app: Starlette) -> uvicorn.Server:
    """A server, to be run with sockets that are bound."""
    quiet: dict[str, Any] = {"log_level": "error", "access_log": False, "lifespan": "off", "ws": "none"}
    config = uvicorn.Config(app, timeout_keep_alive=75, timeout_graceful_shutdown=1, **quiet)
    return uvicorn.Server(config)


class Gateway:
    """The address of this process, for the rollouts of a run."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes()
        self._doors: dict[str, Door] = {}
        self._count = 0
        _allow_connections()
        _without_proxy()
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        listening.listen(4096)
        self.port: int = listening.getsockname()[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self._server = listen(make_app(self._find, "/{rollout}"))
        threading.Thread(target=self._server.run, args=([listening],), name="gateway", daemon=True).start()

    @contextlib.contextmanager
    def opened(self, session: Session) -> Any:
        """The URL of a session, without /v1, and its key. To be entered on the loop on which it is asked."""
        self._count += 1
        number, door = str(self._count), Door(session, asyncio.get_running_loop())
        self._doors[number] = door
        try:
            yield f"{self.root}/{number}", self._key(number)
        finally:
            del self._doors[number]
            door.close()

    @contextlib.asynccontextmanager
    async def reached_from(self, listening: socket.socket) -> AsyncIterator[None]:
        """Serve a socket that listens elsewhere, in another network namespace."""
        server = await asyncio.start_server(self._forward, sock=listening)
        try:
            yield
        finally:
            server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here, there = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(OSError):
            await asyncio.gather(_pour(reader, there), _pour(here, writer))

    def _key(self, number: str) -> str:
        return f"fs-{hmac.digest(self._secret, number.encode(), hashlib.sha256).hex()[:40]}"

    def _find(self, request: Request) -> Door:
        number = request.path_params["rollout"]
        require_key(request, self._key(number))
        door = self._doors.get(number)
        if door is None:
            raise _gone()
        return door


async def _pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while piece := await source.read(2**16):
            target.write(piece)
            await target.drain()
    finally:
        target.close()


def _allow_connections() -> None:
    """As many open files as this process may have: agents leave connections open, and checkpoints need files too."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if most == resource.RLIM_INFINITY else min(most, _MOST_FILES)
    if 0 <= now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _without_proxy() -> None:
    """Clients in this process, and in those that it starts, do not ask a proxy of the environment for this machine."""
    hosts = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(",")
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys([*filter(None, hosts), "127.0.0.1"]))


@cache
def gateway() -> Gateway:
    """The one of this process; it is started when it is first needed."""
    return Gateway()


def variables(url: str, key: str) -> dict[str, str]:
    """What clients read of their environment. Some still look for the older name first, which the user may have set."""
    return {
        "OPENAI_API_KEY": key,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_BASE_URL": url,
    }


def _gone() -> Refused:
    return Refused(410, "rollout_ended", "the rollout of this address has ended")


async def _read(request: Request) -> Any:
    """The JSON of a request. A body that is too long is read to its end: a client that still sends would not see why."""
    length, parts = 0, []
    async for part in request.stream():
        length += len(part)
        if length <= LARGEST:
            parts.append(part)
        else:
            parts.clear()
    if length > LARGEST:
        raise Refused(413, "request_too_large", f"the request has {length:,} bytes; expected at most {LARGEST:,}")
    try:
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise Refused(400, "invalid_json", f"the request is not JSON: {one_line(error)}") from None


def _checked(shape: type[Any], data: Any) -> Any:
    for name, what in shape.refused.items() if isinstance(data, dict) else ():
        if data.get(name):
            raise Refused(400, "unsupported", f"{name}: {what}, which the policy does not have here")
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        # Where a value may have several types, what is wrong deep inside says more than that it has none of them.
        worst = max(error.errors(include_url=False), key=lambda each: len(each["loc"]))
        where = ".".join(map(str, worst["loc"])) or "the request"
        raise Refused(400, "invalid_request", f"{where}: {worst['msg']}") from None


async def _while_connected(request: Request, door: Door, wanted: Wanted) -> list[Said]:
    """The answers, unless whoever asked has gone: what nobody waits for is not sampled."""
    answering = asyncio.ensure_future(door.answers(wanted))
    gone = asyncio.ensure_future(request.receive())  # the body is read: all that can come is the end
    try:
        await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        answering.cancel()
        gone.cancel()
        await asyncio.gather(answering, gone, return_exceptions=True)


def _json(data: Any, status: int = 200) -> Response:
    return Response(json.dumps(data), status, media_type="application/json")
