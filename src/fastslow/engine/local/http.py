"""One HTTP request, for hundreds at once: httpx is made for few, 256 requests in flight cost it 5 to 8 s of CPU time."""

from __future__ import annotations

import json
import os
import resource
from typing import Any

import aiohttp

from fastslow.base.text import one_line

LARGEST = 2**20
"""Bytes of an answer, unless more are expected."""
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


async def request(address: str, path: str, body: Any = None, *, timeout: float, largest: int = LARGEST) -> Any:
    """The answer to a GET, or to a POST of a body, as JSON, or as text if it is none; of at most `largest` bytes."""
    key = os.environ.get("VLLM_API_KEY")
    # Compressed, a short answer could become a long one.
    headers = {
        "Connection": "close",
        "Accept-Encoding": "identity",
        **({"Authorization": f"Bearer {key}"} if key else {}),
    }
    method, limit = "GET" if body is None else "POST", aiohttp.ClientTimeout(timeout)
    data = bytearray()
    try:
        async with (
            aiohttp.ClientSession(headers=headers, timeout=limit, auto_decompress=False) as session,
            session.request(method, address + path, json=body, allow_redirects=False) as answered,
        ):
            status = answered.status
            async for part in answered.content.iter_any():
                data += part
                if len(data) > largest:
                    raise Unavailable(f"its answer has more than {largest:,} bytes")
    except TimeoutError:
        raise Unavailable(f"no answer within {timeout:g} seconds") from None
    except (OSError, aiohttp.ClientError, ValueError) as error:  # of the address too: a name that cannot be one
        raise Unavailable(one_line(error) or type(error).__name__) from error
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


def _reason(answer: Any) -> str:
    """What a server says is wrong: {"error": {"message": …}}, {"message": …} or {"detail": …}."""
    if isinstance(answer, dict):
        inner = answer.get("error")
        answer = (inner if isinstance(inner, dict) else answer).get("message") or answer.get("detail") or answer
    return " ".join(str(answer).split())[:500]
