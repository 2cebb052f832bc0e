"""An FST run sampled by two `vllm serve` processes on one card, one of which is killed in the middle.

    python -m benchmarks.fleet [--recipe recipes/star-graph.yaml] [--steps 4] [--memory 0.25] [--vllm vllm] [KEY=VALUE …]

`--vllm` is vLLM's command, perhaps of an environment of its own. It prints the seconds of every step by phase, the requests
of each server, and how many were sent again. Without a GPU, the tests' fake shows that it runs:

    python -m benchmarks.fleet --recipe src/fastslow/study/quickstart.yaml --fake model.lora.rank=16 \\
        fast.anchors=8 fast.budget=16 slow.problems=4 slow.microbatch=32
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

from rich.console import Console

from fastslow.launch.start import train
from fastslow.models.tokenizer import resolve
from fastslow.recipe import Recipe, load_recipe
from fastslow.runs.view import PlainView

FAKE = Path(__file__).parent.parent / "tests" / "engine" / "local" / "fake_vllm.py"
PATIENCE = 600
"""Seconds for a server to start."""


class KillingView(PlainView):
    """Kills a process while the step after `step` is sampled."""

    def __init__(self, process: subprocess.Popen[bytes], step: int) -> None:
        super().__init__(Console())
        self.process, self.kill_after = process, step

    def step(self, step: int, total: int, metrics: dict[str, Any]) -> None:
        super().step(step, total, metrics)
        if step == self.kill_after:
            threading.Timer(0.5, self.process.kill).start()


def start(options: argparse.Namespace, recipe: Recipe, port: int, log: Path) -> subprocess.Popen[bytes]:
    model = resolve(recipe.model.name)
    if options.fake:
        command = [sys.executable, str(FAKE), model, str(port)]
    else:
        assert recipe.model.lora is not None
        command = [
            *shlex.split(options.vllm), "serve", model, "--port", str(port), "--enable-lora",
            "--max-lora-rank", str(recipe.model.lora.rank), "--max-model-len", str(options.max_model_len),
            "--gpu-memory-utilization", str(options.memory), "--logprobs-mode", "processed_logprobs",
        ]  # fmt: skip
    environment = {**os.environ, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}
    return subprocess.Popen(command, env=environment, stdout=log.open("wb"), stderr=subprocess.STDOUT)


def wait_until_up(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if process.poll() is not None:
            sys.exit(f"the server at {address} has ended:\n{told(log)}")
        try:
            urllib.request.urlopen(f"{address}/v1/models", timeout=5)
        except OSError:
            time.sleep(1)
        else:
            print(f"{address} is up after {time.monotonic() - began:.0f} s")
            return
    sys.exit(f"the server at {address} is not up after {PATIENCE} s:\n{told(log)}")


def told(log: Path) -> str:
    """The first errors of a log, of which later ones are often mere consequences, and its end."""
    lines = log.read_text().splitlines()
    errors = [line for line in lines if "error" in line.lower()]
    return "\n".join([*errors[:20], "…", *lines[-20:]])


def free_port() -> int:
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return any_port.getsockname()[1]


def report(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    phases = sorted({name for row in rows for name in row["phases"]})
    print("\n| step | seconds | " + " | ".join(phases) + " | sampler mismatch |")
    print("|---|---|" + "---|" * (len(phases) + 1))
    for row in rows:
        parts = " | ".join(f"{row['phases'].get(name, 0):.2f}" for name in phases)
        gap = row["sampler_mismatch"]
        print(f"| {row['step']} | {row['seconds']:.2f} | {parts} | {'-' if gap is None else f'{gap:.4f}'} |")
    told = json.loads((run / "run.json").read_text())
    print("\n| server | answered | failed | died |\n|---|---|---|---|")
    for address, counts in told["sampler"]["servers"].items():
        print(f"| {address} | {counts['answered']} | {counts['failed']} | {counts['died']} |")
    ledger = json.loads((run / "ledger.json").read_text())
    again = sum(entry["faults"].get("service", 0) for entry in ledger.values())
    print(f"\nthe run is {told['status']} after {told['steps']} steps; the ledger counts {again} requests sent again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="recipes/star-graph.yaml")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--memory", type=float, default=0.25, help="each server's share of the card")
    parser.add_argument("--max-model-len", type=int, default=4096)
    parser.add_argument("--vllm", default="vllm")
    parser.add_argument("--fake", action="store_true", help="the tests' fake in place of vLLM")
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    addresses = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    recipe = load_recipe(
        options.recipe,
        [
            f"slow.steps={options.steps}", "evaluation.every=0", "evaluation.divergence=false",
            f"sampling.backend={{vllm: {json.dumps(addresses)}}}", *options.overrides,
        ],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        place, servers = Path(folder), []
        try:
            for number, address in enumerate(addresses):  # in turn: vLLM measures the free memory when it starts
                log = place / f"server-{number}.log"
                servers.append(start(options, recipe, int(address.rpartition(":")[2]), log))
                wait_until_up(address, servers[-1], log)
            report(train(recipe, place / "run", KillingView(servers[1], options.steps // 2)))
        finally:
            for server in servers:
                server.kill()


if __name__ == "__main__":
    main()
