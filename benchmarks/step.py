"""How long a training step takes by phase, stock TRL against fastslow, as contexts grow.

    python -m benchmarks.step [--model nano] [--contexts 0 500 1000 2000] [--vllm] [--out benchmarks/results/step]
    python -m benchmarks.step --shape qwen3-8b --lora --mean-tokens 345 --kl 0 --systems fastslow --auto [--ahead 1]

Both make the same steps: the same model, prompts, numbers of rollouts and tokens, the same loss. Every completion has the
full length, or with `--mean-tokens` one that is drawn beforehand (`step_lengths.py` says how answers end). Contexts come in
front of problems, and a step has a few of them in many rollouts, as in Fast-Slow Training. A GPU takes a model of
Qwen2.5-0.5B's shape with random weights, a CPU nano and short contexts; `--model` takes any other: a shape (qwen3-8b,
qwen2.5-0.5b, tiny), a folder or a hub id. `--lora` trains an adapter over a frozen base, in bf16 on a GPU; `--card 80` leaves
as much memory as a card of 80 GB has. Prints a table and writes OUT.json and OUT.png.

`--vllm` adds TRL with vLLM in its process, last; `--systems` chooses freely among trl, fastslow, trl-vllm, fastslow-vllm, of
which a process takes one with vLLM at most. The shares say how near a phase comes to the device's bandwidth and matrix rate,
both measured at the start: what the phase cannot do without (every context and problem once, every weight read once a
decoding step) over what the device could have done in that time.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from subprocess import PIPE, Popen
from typing import Any

import torch
from transformers import AutoConfig
from transformers.utils import logging

from benchmarks.step_clock import PHASES, Clock
from benchmarks.step_figure import draw
from benchmarks.step_systems import SYSTEMS, Job, out_of_memory
from benchmarks.step_workload import SHAPES, LeastWork, Workload, count_weights, measure_device, prepare_model


def main(arguments: Sequence[str] | None = None) -> None:
    options = read_options(arguments)
    if options.draw:
        draw(json.loads(options.draw.read_text()), options.draw.with_suffix(".png"))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = options.model = options.model or ("qwen2.5-0.5b" if device == "cuda" else "nano")
    with smaller_card(options.card):
        measure(options, device, name)


def measure(options: argparse.Namespace, device: str, name: str) -> None:
    rates = {"name": device_name(device), **measure_device(device)}
    print(f"{rates['name']}: {rates['bytes_per_second'] / 1e9:,.0f} GB/s copied, "
          f"{rates['operations_per_second'] / 1e12:,.2f} TFLOP/s in matrix products")  # fmt: skip
    with tempfile.TemporaryDirectory() as work:
        read = options.lora is None or any(SYSTEMS[system][1] for system in options.systems)
        model = prepare_model(name, Path(work), with_weights=read)
        vocabulary = AutoConfig.from_pretrained(model).get_text_config().vocab_size
        load = Workload(
            **{**defaults(device, name), **given(options)},
            vocabulary=vocabulary,
            even=options.even,
            mean_tokens=options.mean_tokens,
        )
        options.repeats = options.repeats or (2 if device == "cuda" else 1)
        options.contexts = options.contexts or ([1000] if name == LARGE else CONTEXTS[device])
        weights = count_weights(model)
        report: dict[str, Any] = {
            "model": f"random weights of {name}'s shape" if name in SHAPES else Path(name).name,
            "weights": weights,
            "device": rates,
            "workload": asdict(load),
            "lora": options.lora,
            "auto": options.auto,
            "ahead": options.ahead,
            "kl": options.kl,
            "checkpointing": options.checkpointing,
            "card": options.card,
            "rows": [],
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        for system in options.systems:
            report["rows"] += run(system, model, device, load, weights, options, Path(work), rates, Clock())
            options.out.with_suffix(".json").write_text(json.dumps(report, indent=1))
    print_table(report)
    draw(report, options.out.with_suffix(".png"))


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", help=f"nano, a folder, a hub id, or a shape with random weights: {', '.join(SHAPES)}"
    )
    parser.add_argument("--shape", dest="model", choices=SHAPES, help="the same for a shape alone")
    parser.add_argument("--contexts", type=int, nargs="+", help="their lengths in tokens")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=["fastslow", "trl"])
    parser.add_argument("--vllm", action="store_true", help="also TRL with vLLM in its process")
    parser.add_argument("--vllm-memory", type=float, default=0.3, help="the share of the card that vLLM may take")
    parser.add_argument("--even", action="store_true", help="problems of one length: stock TRL has nothing to pad")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations, TRL's default")
    parser.add_argument("--lora", type=int, nargs="?", const=32, metavar="RANK", help="train an adapter; rank 32")
    parser.add_argument("--mean-tokens", type=int, help="answers end at random, after so many tokens on average")
    parser.add_argument(
        "--ahead", type=float, default=0.0, help="how many steps ahead fastslow's own sampler begins rollouts"
    )
    parser.add_argument(
        "--auto", action="store_true", help="fastslow chooses micro-batches, checkpointing and vLLM's share by itself"
    )
    parser.add_argument(
        "--card", type=float, metavar="GB", help="use no more of the GPU's memory, as on a smaller card"
    )
    parser.add_argument("--repeats", type=int, help="steps measured at each length")
    parser.add_argument("--kl", type=float, default=1e-3, help="coefficient of the KL penalty; 0 asks no reference")
    parser.add_argument(
        "--profile", action="store_true", help="one more step at the last length, by kernel: OUT.SYSTEM.txt"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/step"))
    parser.add_argument("--draw", type=Path, metavar="JSON", help="only draw the figure of earlier results")
    for field in ("problems", "group", "population", "tokens", "problem-tokens", "microbatch"):
        parser.add_argument(f"--{field}", type=int)
    options = parser.parse_args(arguments)
    if options.vllm:
        options.systems = [*options.systems, "trl-vllm"]
    return options


LARGE = "qwen3-8b"
CONTEXTS = {"cuda": [0, 500, 1000, 2000], "cpu": [0, 150]}
"""Lengths of the contexts by device."""


def defaults(device: str, name: str) -> dict[str, int]:
    small = {"problems": 4, "group": 8, "contexts": 4, "tokens": 16, "problem_tokens": 40, "microbatch": 32}
    large = {"problems": 32, "group": 8, "contexts": 4, "tokens": 128, "problem_tokens": 80, "microbatch": 64}
    long = {"problems": 16, "group": 8, "contexts": 4, "tokens": 1024, "problem_tokens": 200, "microbatch": 16}
    return long if name == LARGE else large if device == "cuda" else small


def given(options: argparse.Namespace) -> dict[str, int]:
    names = {"population": "contexts"}
    fields = ("problems", "group", "population", "tokens", "problem_tokens", "microbatch")
    return {names.get(each, each): getattr(options, each) for each in fields if getattr(options, each) is not None}


HOLD = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.empty(max(free - int(float(sys.argv[1]) * 1e9), 0), dtype=torch.uint8, device="cuda")
print(held.nbytes, flush=True)
sys.stdin.read()
"""


@contextmanager
def smaller_card(card: float | None) -> Iterator[None]:
    """Meanwhile another process holds all memory of the GPU beyond that of a card with so many GB."""
    if card is None:
        yield
        return
    if not torch.cuda.is_available():
        raise SystemExit("--card needs a GPU, and there is none; leave it out")
    with Popen([sys.executable, "-c", HOLD, str(card)], stdin=PIPE, stdout=PIPE, text=True) as other:
        assert other.stdout is not None, "a pipe"
        if not other.stdout.readline():
            raise SystemExit("--card: the process that holds the rest of the GPU's memory failed, as it says above")
        yield


def device_name(device: str) -> str:
    return (
        torch.cuda.get_device_name()
        if device == "cuda"
        else f"{torch.get_num_threads()} CPU cores ({platform.machine()})"
    )


def run(
    system: str,
    model: str,
    device: str,
    load: Workload,
    weights: int,
    options: argparse.Namespace,
    work: Path,
    rates: dict[str, Any],
    clock: Clock,
) -> list[dict[str, Any]]:
    """All steps of a system in one go: at each length one to warm up, then those that are measured."""
    start, vllm, name = SYSTEMS[system]
    each = 1 + options.repeats
    prompts = [load.prompts(length, seed) for length in options.contexts for seed in range(each)]
    profile = options.out.with_suffix(f".{system}.txt") if options.profile else None
    if profile:
        prompts.append(load.prompts(options.contexts[-1], each))
    print(f"{name}: {len(prompts)} steps …", flush=True)
    job = Job(
        model,
        device,
        load,
        prompts,
        options.kl,
        vllm,
        options.vllm_memory,
        work,
        profile,
        options.checkpointing,
        shape=options.model if options.model in SHAPES and options.lora else None,
        lora=options.lora,
        auto=options.auto,
        ahead=options.ahead,
    )
    try:
        start(job, clock)
    except Exception as error:
        if not out_of_memory(error):
            raise
        print(f"{name}: out of memory in step {len(clock.rows) + 1}", flush=True)
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    rows = []
    for place, length in enumerate(options.contexts):
        measured = clock.rows[place * each + 1 : (place + 1) * each]
        width = 2 if device == "cuda" else 4
        numbers = range(place * each + 1, (place + 1) * each)
        works = [LeastWork.of(prompts[n], job.lengths[n], weights, width, job.lora is not None) for n in numbers]
        tokens = mean(sum(job.lengths[n]) for n in numbers)
        rows.append({"system": system, "name": name, "context": length, **summary(measured, tokens, works, rates)})
    return rows


def summary(
    measured: list[dict[str, float]], tokens: float, works: list[LeastWork], rates: dict[str, Any]
) -> dict[str, Any]:
    """Means over the measured steps; nothing where there are none, because the system ran out of memory before."""
    if not measured:
        return {"seconds": None}
    phases = {phase: sum(row[phase] for row in measured) / len(measured) for phase in PHASES}
    seconds = sum(phases.values())

    def shares(work: list[tuple[float, float]], spent: float) -> dict[str, float]:
        operations, moved = (mean(each) for each in zip(*work, strict=True))
        return {
            "matrix": operations / spent / rates["operations_per_second"],
            "bandwidth": moved / spent / rates["bytes_per_second"],
        }

    return {
        "seconds": seconds,
        "every_step": [sum(row[phase] for phase in PHASES) for row in measured],
        "phases": phases,
        "completion_tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "sampled_tokens_per_second": tokens / phases["sampling"],
        "peak_bytes": max(row["memory"] for row in measured),
        "shares": {
            "sampling": shares([work.sampling() for work in works], phases["sampling"]),
            "update": shares([work.update() for work in works], phases["update"]),
        },
    }


def print_table(report: dict[str, Any]) -> None:
    print(f"\n{'':24}{'context':>8}{'step s':>8}" + "".join(f"{phase:>11}" for phase in PHASES)
          + f"{'tokens/s':>10}{'peak GiB':>10}   share of the device: sampling, update")  # fmt: skip
    for row in report["rows"]:
        line = f"{row['name']:24}{row['context']:>8}"
        if row["seconds"] is None:
            print(line + "   does not fit into memory")
            continue
        shares = row["shares"]
        print(
            line
            + f"{row['seconds']:>8.2f}"
            + "".join(f"{row['phases'][phase]:>11.2f}" for phase in PHASES)
            + f"{row['tokens_per_second']:>10,.0f}{row['peak_bytes'] / 2**30:>10.1f}"
            + "".join(
                f"   {each['bandwidth']:.0%} bandwidth {each['matrix']:.0%} matrix"
                for each in (shares["sampling"], shares["update"])
            )
        )


if __name__ == "__main__":
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    main()
