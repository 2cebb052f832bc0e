"""Mistakes in `engine:` are found before anything is spent: one line that says what was given and what to do."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from helpers import fastslow

from fastslow.base.errors import RecipeError
from fastslow.engine.tinker import sdk
from fastslow.engine.tinker.sdk import connect
from fastslow.recipe import Recipe, build_recipe
from fastslow.runs.folder import RunFolder

Serve = Callable[[dict[str, Any]], str]
CONFIG = {"/api/v1/client/config": (200, {"pjwt_auth_enabled": False})}
DRIPS = 0
"""In place of a status: a body that goes on for hours, a byte at a time."""
HEALTHY = {"/api/v1/healthz": (200, {"status": "ok"})} | CONFIG


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers that answer every path with a status and a body; of a list of answers, each but the last once."""
    started: list[ThreadingHTTPServer] = []

    def start(answers: dict[str, Any]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                found = answers.get(self.path.partition("?")[0], (404, {"detail": "Not Found"}))
                if isinstance(found, list):
                    found = found.pop(0) if len(found) > 1 else found[0]
                status, body = found
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(200 if status == DRIPS else status)
                self.send_header("content-type", "application/json")
                if isinstance(body, bytes):
                    self.send_header("content-encoding", "gzip")
                self.send_header("content-length", str(len(data) if status != DRIPS else 10**9))
                self.end_headers()
                with contextlib.suppress(OSError):  # the client has gone
                    while status == DRIPS:
                        self.wfile.write(b" ")
                        time.sleep(0.05)
                    self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def recipe(address: str | None, **engine: Any) -> Recipe:
    settings = {"kind": "tinker", "base_url": address, **engine}
    return build_recipe({"model": "nano", "task": "rulebook", "engine": settings})


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_no_server_at_the_address() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RecipeError, match=rf"no server answers at engine.base_url={address} .*; start it, or correct"):
        connect(recipe(address))


def test_a_server_of_something_else(serve: Serve) -> None:
    with pytest.raises(
        RecipeError, match=r"answers, but not as a server of the Tinker API \(HTTP 404 for /api/v1/healthz\)"
    ):
        connect(recipe(serve({})))


@pytest.mark.parametrize("key", [None, "tml-secret"])
def test_a_wrong_key_is_not_repeated(key: str | None, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    if key:
        monkeypatch.setenv("TINKER_API_KEY", key)
    address = serve(HEALTHY | {"/api/v1/get_server_capabilities": (401, {"detail": "no"})})
    with pytest.raises(RecipeError, match="set TINKER_API_KEY to a valid key") as refused:
        connect(recipe(address))
    assert "secret" not in str(refused.value)


def test_the_hosted_service_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    with pytest.raises(RecipeError, match="needs an API key; set TINKER_API_KEY"):
        connect(recipe(None))


def test_a_model_that_the_server_does_not_have(serve: Serve) -> None:
    models = {"supported_models": [{"model_name": "Qwen/Qwen3-8B"}, {"model_name": "Qwen/Qwen3-32B"}]}
    address = serve(HEALTHY | {"/api/v1/get_server_capabilities": (200, models)})
    with pytest.raises(RecipeError, match=r"does not have the model 'nano' .*; it has Qwen/Qwen3-8B, Qwen/Qwen3-32B"):
        connect(recipe(address))
    connect(recipe(address, model="Qwen/Qwen3-8B")).close()


def test_requests_that_are_refused_for_the_moment_are_sent_again_and_counted(serve: Serve) -> None:
    good = (200, {"supported_models": [{"model_name": "nano"}]})
    answers = [(429, {"detail": "too many"}), (503, {"detail": "starting"}), good]
    service = connect(recipe(serve(HEALTHY | {"/api/v1/get_server_capabilities": answers})))
    assert service.repeated == 2
    service.close()


@pytest.mark.parametrize("path", ["/api/v1/healthz", "/api/v1/get_server_capabilities", "/api/v1/client/config"])
def test_a_server_that_drips_is_given_up(path: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "QUICK", 1.0)
    models = {"/api/v1/get_server_capabilities": (200, {"supported_models": [{"model_name": "nano"}]})}
    address = serve(HEALTHY | models | {path: (DRIPS, {})})
    started = time.monotonic()
    with pytest.raises(RecipeError, match=rf"no server answers at engine.base_url={address} in time|took more than"):
        connect(recipe(address, timeout=2.0))
    assert time.monotonic() - started < 100  # it would drip for years


def test_an_answer_without_end_is_given_up(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "LARGEST", 2**16)
    address = serve(HEALTHY | {"/api/v1/healthz": (200, "x" * 2**20)})
    with pytest.raises(RecipeError, match="more than 65,536 bytes"):
        connect(recipe(address))


@pytest.mark.parametrize("path", ["/api/v1/healthz", "/api/v1/get_server_capabilities"])
def test_an_answer_is_not_unpacked_into_a_longer_one(path: str, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "LARGEST", 2**16)
    unpacked: list[int] = []
    monkeypatch.setattr("httpx._decoders.GZipDecoder.decode", lambda _, data: unpacked.append(len(data)) or data)
    models = {"/api/v1/get_server_capabilities": (200, {"supported_models": [{"model_name": "nano"}]})}
    with contextlib.suppress(RecipeError):
        connect(recipe(serve(HEALTHY | models | {path: (200, gzip.compress(b"x" * 2**26))}))).close()
    assert not unpacked


def archive(*sizes: int) -> bytes:
    """A packed archive with files of these sizes, without the content of the last."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for number, size in enumerate(sizes):
            info = tarfile.TarInfo(f"file-{number}")
            info.size = size
            made.addfile(info, io.BytesIO(b"x" * size) if number < len(sizes) - 1 else None)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (archive(2**15, 2**20), "holds more than 65,536 bytes"),
        (archive(*[1] * 300), "holds more than 65,536 bytes"),
        (b"no archive", "cannot be read"),
        (archive(9, 9)[:-20], "cannot be read"),
        (archive(9, 0), "cannot be read"),
    ],
    ids=[
        "large",
        "many",
        "none",
        "cut",
        "lying",
    ],  # an archive holds the time, and workers need the same names of tests
)
def test_an_archive_that_is_none_is_refused(
    packed: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sdk, "LARGEST_FILE", 2**16)
    with pytest.raises(sdk.Refused, match=said):
        sdk.unpack(io.BytesIO(packed), tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2**16


def test_a_server_of_another_version(serve: Serve) -> None:
    address = serve(HEALTHY | {"/api/v1/get_server_capabilities": (422, {"detail": "field required"})})
    with pytest.raises(RecipeError, match=r"does not answer as tinker 0\.25\.\d+ expects"):
        connect(recipe(address))


@pytest.mark.parametrize("version", ["0.24.1", "0.26.0", "1.0.0", None])
def test_a_package_of_another_version(version: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> str:
        if version is None:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(sdk.metadata, "version", found)
    with pytest.raises(RecipeError, match=r"0\.25 or later, before 0\.26: pip install 'fastslow\[tinker\]'"):
        connect(recipe("http://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"method": "distill"}, "engine.kind=tinker cannot run method=distill"),
        ({"model": {"name": "nano", "lora": {}}}, "remove it and set engine.rank"),
        ({"slow": {"loss": "grpo"}}, "engine.kind=tinker has slow.loss=cispo only"),
        ({"sampling": {"temperature": 0.7}}, "at temperature 1"),
        ({"sampling": {"backend": "vllm"}}, "remove sampling.backend=vllm"),
        ({"engine": {"kind": "tinker", "base_url": "http://user:word@host"}}, "set TINKER_API_KEY in the environment"),
        ({"engine": {"kind": "tinker", "base_url": "host:80"}}, "starts with http:// or https://"),
        ({"engine": "cloud"}, "engine='cloud'"),
    ],
)
def test_what_a_service_cannot_do_is_refused_in_one_line(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(RecipeError) as refused:
        build_recipe({"model": "nano", "task": "rulebook", "engine": "tinker", **change})
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_run_is_refused_with_exit_code_2_and_leaves_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("{model: nano, task: rulebook, sampling: {max_tokens: 16}}")
    port = free_port()
    done = fastslow(
        "train",
        file,
        f"engine={{kind: tinker, base_url: 'http://127.0.0.1:{port}'}}",
        f"output.folder={tmp_path / 'run'}",
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: no server answers at engine.base_url=http://127.0.0.1:{port}")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_one_line_changes_the_engine() -> None:
    local = build_recipe({"model": "nano", "task": "rulebook"})
    cluster = build_recipe(
        {"model": "nano", "task": "rulebook", "engine": {"kind": "tinker", "base_url": "http://host"}}
    )
    assert local.engine.kind == "local"
    assert cluster.model_copy(update={"engine": local.engine}) == local
    assert build_recipe({"model": "nano", "task": "rulebook", "engine": "local"}) == local


def test_an_adapter_names_its_layers(tmp_path: Path) -> None:
    header = json.dumps({"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight": {}, "m.q_proj.lora_B.weight": {}})
    (tmp_path / "adapter_model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header.encode())
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 4, "target_modules": None}))
    sdk.complete_config(tmp_path)
    found = json.loads((tmp_path / "adapter_config.json").read_text())
    assert found == {"r": 4, "target_modules": ["q_proj", "up_proj"], "task_type": "CAUSAL_LM"}


RUN_WITHOUT_TORCH = """
import io, sys
for name in ("torch", "trl", "accelerate", "peft"):
    sys.modules[name] = None  # as if they were not installed
sys.path[:0] = sys.argv[1:3]
from fake_service import FakeService, Server
from rich.console import Console
from fastslow.engine.tinker import sdk
from fastslow.recipe import build_recipe
from fastslow.runs.view import PlainView
server = Server(list(range(3, 30)) + [2])
sdk.connect = lambda recipe: FakeService(server)
from fastslow.launch.start import train
recipe = build_recipe({
    "model": "nano", "engine": {"kind": "tinker", "base_url": "http://fake", "reduction": "sum"},
    "task": {"name": "rulebook", "book": "library"},
    "slow": {"steps": 2, "problems": 2, "group": 4, "microbatch": 8},
    "fast": {"population": 2, "cycle": 2, "anchors": 2, "budget": 8, "minibatch": 2},
    "sampling": {"max_tokens": 8}, "evaluation": {"problems": 2, "divergence": True}, "output": {"checkpoint_every": 1},
})
train(recipe, sys.argv[3], PlainView(Console(file=io.StringIO())))
import tinker  # the package itself does without, too
"""


def test_a_run_on_a_service_needs_no_torch(tmp_path: Path) -> None:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT_TORCH, str(here), str(here.parent), str(tmp_path / "run")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = RunFolder.open(tmp_path / "run").rows("metrics")
    assert [row["step"] for row in rows] == [1, 2]
