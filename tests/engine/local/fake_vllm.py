"""As much of `vllm serve` as the fleet asks for, over real HTTP: it samples with transformers and loads PEFT adapters.

`python tests/engine/local/fake_vllm.py MODEL PORT` serves a model until it is killed."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


class FakeVllm:
    """One server; attributes are what a user may start it with, or what goes wrong."""

    def __init__(self, model: str | Path, **settings: Any) -> None:
        self.model = str(model)
        self.lora, self.max_rank, self.max_length, self.mode = True, 16, 256, "processed_logprobs"
        self.checks_names = True
        """Whether a model that it does not have is refused."""
        self.failures: list[int] = []
        """HTTP statuses of its next answers to requests for completions."""
        self.dies_after: int | None = None
        """Completions until it is killed."""
        self.spoils: Callable[[Any], Any] = lambda answer: answer
        """What becomes of an answer to a request for a completion."""
        self.__dict__.update(settings)
        self.asked: list[str] = []
        """The models that completions were asked from."""
        self.told: list[str] = []
        """Adapters that it was given, and the paths it could not read or did not want."""
        self.open = self.most = 0
        self._held = socket.socket()  # bound, never listening: no one else gets the port while the server is dead
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", int(settings.get("port", 0))))
        self.port = self._held.getsockname()[1]
        self._lock = threading.Lock()
        self._http: ThreadingHTTPServer | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start, or start again: with no adapter, at the same address."""
        self.adapters: dict[str, str] = {}
        self.policy: Any = AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32).eval()
        self._http = _Http(("127.0.0.1", self.port), _Handler)
        self._http.fake = self  # type: ignore[attr-defined]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def kill(self) -> None:
        """Stop listening; what is under way gets no answer."""
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()  # returns when the listening socket is no longer polled: it would not close before
            http.server_close()

    @property
    def alive(self) -> bool:
        return self._http is not None

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/models":
            base = {"id": self.model, "root": self.model, "parent": None, "max_model_len": self.max_length}
            return 200, {"data": [base, *({"id": name, "parent": self.model} for name in self.adapters)]}
        if path == "/version":
            return 200, {"version": "0.24.0"}
        if path == "/v1/completions":
            return self._complete(body)
        if not self.lora or path not in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
            return 404, {"detail": "Not Found"}
        with self._lock:
            return self._load(body) if path == "/v1/load_lora_adapter" else self._unload(body)

    def _load(self, body: dict[str, Any]) -> tuple[int, Any]:
        name, folder = body["lora_name"], Path(body["lora_path"])
        self.told.append(name)
        if name in self.adapters:
            return _error(400, f"The lora adapter '{name}' has already been loaded.")
        if not (folder / "adapter_config.json").exists():
            return _error(404, f"Loading lora {name} failed: No adapter found for {folder}")
        rank = json.loads((folder / "adapter_config.json").read_text())["r"]
        if rank > self.max_rank:
            return _error(500, f"LoRA rank {rank} is greater than max_lora_rank {self.max_rank}.")
        if isinstance(self.policy, PeftModel):
            self.policy.load_adapter(folder, adapter_name=name)
        else:
            self.policy = PeftModel.from_pretrained(self.policy, folder, adapter_name=name).eval()
        self.adapters[name] = str(folder)
        return 200, f"Success: LoRA adapter '{name}' added successfully."

    def _unload(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.adapters.pop(body["lora_name"], None) is None:
            return _error(404, "The lora adapter cannot be found.")
        return 200, "Success"

    def _complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = body["model"]
        if self.failures:
            return _error(self.failures.pop(0), "not now")
        self.asked.append(name)
        if self.checks_names and name not in (self.model, *self.adapters):
            return _error(404, f"The model `{name}` does not exist.")
        if len(body["prompt"]) + body["max_tokens"] > self.max_length:
            return _error(400, f"This model's maximum context length is {self.max_length} tokens.")
        self.open, self.most = self.open + 1, max(self.most, self.open + 1)
        with self._lock:
            ids, logprobs = self._sample(name if name in self.adapters else None, body)
            self.open -= 1
            if self.dies_after is not None:
                self.dies_after -= 1
                if self.dies_after < 0:
                    self.kill()
        reason = "length" if len(ids) == body["max_tokens"] else "stop"
        choice = {
            "index": 0,
            "token_ids": ids,
            "logprobs": {"token_logprobs": logprobs},
            "text": "",
            "finish_reason": reason,
        }
        answer = {"model": name if name in self.adapters else self.model, "choices": [choice]}
        return 200, self.spoils(answer)

    @torch.no_grad()
    def _sample(self, adapter: str | None, body: dict[str, Any]) -> tuple[list[int], list[float]]:
        assert (body["top_k"], body["repetition_penalty"], body["logprobs"], body["return_token_ids"]) == (
            0,
            1,
            0,
            True,
        )
        if adapter is None and isinstance(self.policy, PeftModel):
            with self.policy.disable_adapter():
                return self._draw(body)
        if adapter is not None:
            self.policy.set_adapter(adapter)
        return self._draw(body)

    def _draw(self, body: dict[str, Any]) -> tuple[list[int], list[float]]:
        draw = torch.Generator().manual_seed(body["seed"])
        ends = () if body.get("ignore_eos") else body["stop_token_ids"]
        ids: list[int] = []
        logprobs: list[float] = []
        read, cache = list(body["prompt"]), None
        while len(ids) < body["max_tokens"] and not (ids and ids[-1] in ends):
            output = self.policy(torch.tensor([read]), past_key_values=cache, use_cache=True)
            logits, cache = output.logits[0, -1].float(), output.past_key_values
            raw, cold = torch.log_softmax(logits, -1), torch.log_softmax(logits / body["temperature"], -1)
            best = cold.sort(descending=True)
            outside = best.indices[(best.values.exp().cumsum(0) - best.values.exp()) >= body["top_p"]]
            cold = torch.log_softmax(cold.index_fill(0, outside, -torch.inf), -1)
            ids.append(int(torch.multinomial(cold.exp(), 1, generator=draw)))
            read = ids[-1:]
            logprobs.append(float((cold if self.mode == "processed_logprobs" else raw)[ids[-1]]))
        return ids, logprobs


def _error(status: int, message: str) -> tuple[int, Any]:
    return status, {"error": {"message": message, "type": "Error", "param": None, "code": status}}


class _Http(ThreadingHTTPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 1024


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.reply({})

    def do_POST(self) -> None:
        self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def reply(self, body: dict[str, Any]) -> None:
        fake: FakeVllm = self.server.fake  # type: ignore[attr-defined]
        status, answer = fake.answer(self.path, body)
        if fake._http is not self.server:  # killed meanwhile
            return
        data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


if __name__ == "__main__":
    FakeVllm(sys.argv[1], port=int(sys.argv[2]), max_length=1024)
    threading.Event().wait()
