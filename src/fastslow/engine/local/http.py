"""One HTTP request, for hundreds at once: httpx is made for few, 256 requests in flight cost it 5 to 8 s of CPU time."""

from __future__ import annotations

import json
import os
import resource
from typing import Any

import aiohttp

from fastslow.base.text import one_line

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
    key = os.environ.get("VLLM_API_KEY")
    headers = {"Connection": "close", **({"Authorization": f"Bearer {key}"} if key else {})}
    method, limit = "GET" if body is None else "POST", aiohttp.ClientTimeout(timeout)
    sent = aiohttp.request(method, address + path, json=body, headers=headers, timeout=limit, allow_redirects=False)
    try:
        async with sent as answered:
            status, data = answered.status, await answered.read()
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
