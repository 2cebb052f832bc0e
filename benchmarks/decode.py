"""What a decoding step of the own sampler spends its time on.

    python -m benchmarks.decode [--shape qwen3-8b] [--rows 128] [--context 1000] [--columns 128 512 1024]

A step is timed with random weights and with so many columns for tokens of the answers: as it runs in training (replayed as a
CUDA graph on a GPU), and launched kernel by kernel. The second is also profiled and divided into matrix products of linear
layers, attention, drawing, and the rest: norms, positions, activations, copies. `no kernel` is what the replayed step takes
beyond the sum of its kernels. `weights` is the time to read all weights once at the measured bandwidth: no step is faster.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.step_workload import SHAPES, Workload, measure_device, random_model
from fastslow.prefix import sampling as sampler_module
from fastslow.prefix.level_attention import Pass, Store, shared_prefixes
from fastslow.prefix.sampling import SharedSampler, _Decoding
from fastslow.prefix.tree import prompt_tree
from fastslow.records import Sampling

PRODUCTS = ("aten::mm", "aten::addmm")
REPEATS = 20


def main(arguments: Sequence[str] | None = None) -> None:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-8b" if gpu else "tiny")
    parser.add_argument("--rows", type=int, default=128 if gpu else 8)
    parser.add_argument("--context", type=int, default=1000 if gpu else 64)
    parser.add_argument("--problem", type=int, default=200 if gpu else 16)
    parser.add_argument("--columns", type=int, nargs="+", default=[128, 512, 1024] if gpu else [16])
    parser.add_argument("--table", action="store_true", help="also print torch.profiler's table of the step")
    options = parser.parse_args(arguments)
    device = "cuda" if gpu else "cpu"
    model = random_model(options.shape, device, torch.bfloat16 if gpu else torch.float32).eval()
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    floor = weights / measure_device(device)["bytes_per_second"]
    load = Workload(
        options.rows // 8, 8, 4, max(options.columns), options.problem, 16, SHAPES[options.shape]["vocab_size"]
    )
    parts = ("linear layers", "attention", "drawing", "rest", "no kernel")
    print(f"{options.shape}, {load.rollouts} rows, contexts of {options.context}; milliseconds of a step")
    print(f"{'columns':>8}{'step':>9}{'launched':>10}{'weights':>9}" + "".join(f"{part:>15}" for part in parts))
    with torch.no_grad(), shared_prefixes(model), _ranges():
        for columns in options.columns:
            step, launched = _steps(model, load, options.context, columns)
            taken, eager = _seconds(step, gpu), _seconds(launched, gpu)
            found, table = _profiled(launched, gpu)
            found["no kernel"] = taken - sum(found.values())
            print(
                f"{columns:>8}{1e3 * taken:>9.2f}{1e3 * eager:>10.2f}{1e3 * floor:>9.2f}"
                + "".join(f"{1e3 * found[part]:>15.2f}" for part in parts),
                flush=True,
            )
            if options.table:
                print(table)


def _steps(model: Any, load: Workload, context: int, columns: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A step as in training, and launched kernel by kernel; both can be repeated at the last column."""
    tree = prompt_tree(load.prompts(context, seed=0))
    sampler = SharedSampler(model, (), Sampling(1.0, 1.0, columns + 1))
    decoding = _Decoding(sampler, tree, sampler._prefill(tree), list(range(load.rollouts)), seed=0)
    decoding.own = Store(load.rollouts, columns)
    decoding.drawn = columns - 1

    def launched() -> None:
        decoding.column.fill_(columns - 1)
        decoding._step()

    for _ in range(2):
        launched()
    if not sampler.graphs:
        return launched, launched
    replay = decoding._record()

    def replayed() -> None:
        decoding.column.fill_(columns - 1)
        replay()

    return replayed, launched


class _ranges:
    """Names the parts of a step for the profiler."""

    def __enter__(self) -> None:
        self.attend, self.draw = Pass.attend, sampler_module.draw
        attend, draw = self.attend, self.draw

        def named_attend(*arguments: Any) -> Any:
            with record_function("attention"):
                return attend(*arguments)

        def named_draw(*arguments: Any) -> Any:
            with record_function("drawing"):
                return draw(*arguments)

        Pass.attend, sampler_module.draw = named_attend, named_draw  # type: ignore[method-assign]

    def __exit__(self, *_: Any) -> None:
        Pass.attend, sampler_module.draw = self.attend, self.draw  # type: ignore[method-assign]


def _seconds(work: Callable[[], None], gpu: bool) -> float:
    """The mean of several calls in a row, without waiting in between."""
    work()
    if gpu:
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(REPEATS):
        work()
    if gpu:
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / REPEATS


def _profiled(work: Callable[[], None], gpu: bool) -> tuple[dict[str, float], str]:
    """Seconds of the kernels of each part, and the profiler's table."""
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]) as found:
        work()
        if gpu:
            torch.cuda.synchronize()
    averages = found.key_averages()

    def spent(names: Sequence[str], kind: str) -> float:
        return sum(getattr(event, kind) for event in averages if event.key in names) / 1e6

    whole, own = ("device_time_total", "self_device_time_total") if gpu else ("cpu_time_total", "self_cpu_time_total")
    named = {"attention", "drawing"}
    total = sum(getattr(event, own) for event in averages if not gpu or event.key not in named) / 1e6
    parts = {"linear layers": spent(PRODUCTS, own), "attention": spent(["attention"], whole)}
    parts["drawing"] = spent(["drawing"], whole)
    parts["rest"] = total - sum(parts.values())
    return parts, averages.table(sort_by=own, row_limit=30)


if __name__ == "__main__":
    main()
