"""A small OpenAI-compatible server over a local transformers model, with faults on demand.

By hand: `python tests/fast/reflection/openai_server.py MODEL_FOLDER PORT`, then recipe keys
`fast.reflection.kind=litellm fast.reflection.model=NAME fast.reflection.base_url=http://127.0.0.1:PORT/v1`.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fastslow.fast.reflection import ChatFailed, LocalChat, Reply

LONGEST = 128
"""Pieces of an answer without end."""


@dataclass(frozen=True)
class Fault:
    """What one request gets instead of the model's answer: an error status, a pause, a fixed text, no choice, or no end."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    text: Any = None
    usage: int | None = None
    """What it says that the prompt and the answer have, in tokens."""
    no_choice: bool = False
    endless: tuple[int, float] | None = None
    """Instead of an answer, so many spaces at a time, with a pause of so many seconds before each."""
    sent: list[int] = field(default_factory=list)


class OpenAIServer(ThreadingHTTPServer):
    """Serves POST /v1/chat/completions. `faults` are used up one a request; `requests` keeps every body that came."""

    daemon_threads = True

    def __init__(self, model: Any, tokenizer: Any, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.model = model
        self.tokenizer = tokenizer
        self.faults: deque[Fault] = deque()
        self.requests: list[dict[str, Any]] = []
        self.encodings: set[str] = set()
        """What clients say of how an answer may be packed."""
        self.closing = threading.Event()
        self._one_at_a_time = threading.Lock()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> OpenAIServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()

    def answer(self, body: Mapping[str, Any]) -> Reply:
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 256
        chat = LocalChat(self.model, self.tokenizer, body.get("temperature", 1.0), limit)
        with self._one_at_a_time:
            return chat(body["messages"], body.get("seed") or 0)


class _Handler(BaseHTTPRequestHandler):
    server: OpenAIServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/chat/completions":
            return self._error(404, f"no such path {self.path}")
        self.server.requests.append(body)
        self.server.encodings.add(self.headers["Accept-Encoding"])
        fault = self.server.faults.popleft() if self.server.faults else Fault()
        self.server.closing.wait(fault.delay)
        if fault.endless:
            return self._pour(fault, *fault.endless)
        if fault.status != 200:
            return self._error(fault.status, "injected fault", fault.headers)
        try:
            said = 1 if fault.usage is None else fault.usage
            reply = self.server.answer(body) if fault.text is None else Reply(fault.text, said, said)
        except ChatFailed as error:
            return self._error(400, str(error))
        message = {"role": "assistant", "content": reply.text}
        choice = {"index": 0, "message": message, "finish_reason": "length" if reply.truncated else "stop"}
        return self._send(
            200,
            {
                "id": "chatcmpl-local",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [] if fault.no_choice else [choice],
                "usage": {
                    "prompt_tokens": reply.prompt_tokens,
                    "completion_tokens": reply.completion_tokens,
                    "total_tokens": reply.prompt_tokens + reply.completion_tokens,
                },
            },
            fault.headers,
        )

    def _pour(self, fault: Fault, size: int, pause: float) -> None:
        self.send_response(200)
        for name, value in (("Content-Type", "application/json"), *fault.headers.items()):
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while len(fault.sent) < LONGEST and not self.server.closing.wait(pause):
                self.wfile.write(b" " * size)
                fault.sent.append(size)

    def _error(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        self._send(status, {"error": {"message": message, "type": "error", "code": status}}, headers)

    def _send(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        try:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client stopped waiting

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(folder: str, port: str) -> None:
    from fastslow.models.load import load_to_ask

    server = OpenAIServer(*load_to_ask(folder, "cpu"), int(port))
    print(f"serving {folder} at {server.base_url}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: openai_server.py MODEL_FOLDER PORT")
    main(sys.argv[1], sys.argv[2])
