"""One HTTP request with the standard library, for hundreds at once.

httpx is made for few: 256 requests in flight cost it 5 to 8 s of CPU time, these 0.2 s (measured with httpx 0.28).
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import resource
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

SPARE = 256
"""Files that a process may need beside its connections."""


class Unavailable(Exception):
    """The server cannot be reached, takes too long, or fails (5xx); another one may answer."""


class Busy(Unavailable):
    """The server refuses for the moment (429)."""


class Refused(Exception):
    """The server does not accept the request (3xx, 4xx)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"HTTP {status}: {reason}")
        self.status, self.reason = status, reason


def most_connections() -> int:
    """How many connections this process may have open (`ulimit -n`)."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 10**6 if files == resource.RLIM_INFINITY else max(files - SPARE, files // 2)


async def request(address: str, path: str, body: Any = None, *, timeout: float) -> Any:
    """The answer to a GET, or to a POST of a body, as JSON, or as text if it is none."""
    try:
        async with asyncio.timeout(timeout):
            status, data = await _exchange(address, path, body)
    except TimeoutError:
        raise Unavailable(f"no answer within {timeout:g} seconds") from None
    except (OSError, HTTPException, ValueError) as error:  # of the address too: a name that cannot be one
        raise Unavailable(str(error) or type(error).__name__) from error
    text = data.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = text
    if status == 200:
        return answer
    if status == 429:
        raise Busy(_reason(answer))
    if status >= 500:
        raise Unavailable(f"HTTP {status}: {_reason(answer)}")
    raise Refused(status, _reason(answer))


async def _exchange(address: str, path: str, body: Any) -> tuple[int, bytes]:
    where = urlsplit(address)
    secure = where.scheme == "https"
    reader, writer = await asyncio.open_connection(
        where.hostname, where.port or (443 if secure else 80), ssl=secure or None
    )
    try:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{'GET' if body is None else 'POST'} {where.path}{path} HTTP/1.1",
            f"Host: {where.netloc}",
            "Connection: close",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
        ]
        if key := os.environ.get("VLLM_API_KEY"):
            lines.append(f"Authorization: Bearer {key}")
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()
        return _parsed(await reader.read())
    finally:
        writer.close()


def _parsed(received: bytes) -> tuple[int, bytes]:
    """Status and body; raises if the body is not whole."""
    response = HTTPResponse(_Received(received))  # type: ignore[arg-type]
    response.begin()
    return response.status, response.read()


class _Received:
    """As much of a socket as `HTTPResponse` needs to read what has arrived."""

    def __init__(self, received: bytes) -> None:
        self.received = received

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.received)


def _reason(answer: Any) -> str:
    """What a server says is wrong: {"error": {"message": …}}, {"message": …} or {"detail": …}."""
    if isinstance(answer, dict):
        inner = answer.get("error")
        answer = (inner if isinstance(inner, dict) else answer).get("message") or answer.get("detail") or answer
    return " ".join(str(answer).split())[:500]
