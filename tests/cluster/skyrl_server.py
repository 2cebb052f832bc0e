"""Start, kill and restart SkyRL's server from a test or a benchmark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
from safetensors.torch import load_file, save_file

from fastslow.models.tokenizer import resolve

HERE = Path(__file__).parent


class SkyRL:
    """A server of nano; `python` is that of SkyRL's environment, `at_once` how many sequences it samples together."""

    def __init__(self, python: str, folder: Path, *, rank: int = 4, at_once: int = 8) -> None:
        # Always the same shapes: the backend compiles for each.
        self.backend = {
            "max_lora_adapters": 6,
            "max_lora_rank": rank,
            "train_micro_batch_size": 8,
            "sample_max_num_sequences": at_once,
        }
        self.python, self.folder, self.model = python, folder, nano_in_fp32(folder / "nano")
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "COV"))},
            "PYTHONPATH": str(HERE / "stand_ins"),
            "JAX_PLATFORMS": "cpu",
            "HF_HUB_OFFLINE": "1",
            # What was compiled before the server was killed need not be compiled again.
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.python, HERE / "serve.py", self.model, str(self.port), self.folder, json.dumps(self.backend)],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if httpx.get(f"{self.address}/api/v1/healthz", timeout=5).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.2)
        raise AssertionError(f"the server did not start: {(self.folder / 'server.log').read_text()[-2000:]}")

    def kill(self) -> None:
        """As a power cut does: the server and the process that computes."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def nano_in_fp32(folder: Path) -> Path:
    """The server computes in a model's stored precision, and nano is stored in bf16."""
    source = Path(resolve("nano"))
    shutil.copytree(source, folder)
    weights = {name: weight.float() for name, weight in load_file(source / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}))
    return folder
