"""What a decoding step of the own sampler spends its time on.

    python -m benchmarks.decode [--shape qwen3-8b] [--rows 128] [--context 1000] [--columns 128 512 1024]
                                [--kernels none attention model both]

A step is timed with random weights and with so many columns for tokens of the answers: as it runs in training (replayed as a
CUDA graph on a GPU), and launched kernel by kernel. The second is also profiled and divided into matrix products of linear
layers, attention, drawing, and the rest: norms, positions, activations, copies. `no kernel` is what the replayed step takes
beyond the sum of its kernels, `launches` their number. `weights` is the time to read all weights once at the measured
bandwidth: no step is faster.

Each of `--kernels` is measured: the model as transformers computes it (none); attention by `prefix.decode_attention`
(attention); norms, positions and SwiGLU by `models.kernels` (model); both. A run uses both if liger-kernel is installed.
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.step_workload import SHAPES, Workload, measure_device, random_model
from fastslow.models.kernels import use_kernels, why_no_kernels
from fastslow.prefix import level_attention
from fastslow.prefix import sampling as sampler_module
from fastslow.prefix.level_attention import Pass, Store, shared_prefixes
from fastslow.prefix.sampling import UNBOUNDED, SharedSampler, _Decoding
from fastslow.prefix.tree import prompt_tree
from fastslow.records import Sampling

PRODUCTS = ("aten::mm", "aten::addmm")
NAMED = ("attention", "drawing")
ATTENTION = ("_attend_parts", "_merge_parts")
"""Kernels of `decode_attention`."""
REPEATS = 20
KERNELS = ("none", "attention", "model", "both")
"""The order matters: kernels of the model stay."""


def main(arguments: Sequence[str] | None = None) -> None:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-8b" if gpu else "tiny")
    parser.add_argument("--rows", type=int, default=128 if gpu else 8)
    parser.add_argument("--context", type=int, default=1000 if gpu else 64)
    parser.add_argument("--problem", type=int, default=200 if gpu else 16)
    parser.add_argument("--columns", type=int, nargs="+", default=[128, 512, 1024] if gpu else [16])
    parser.add_argument("--kernels", choices=KERNELS, nargs="+", default=list(KERNELS) if gpu else ["none"])
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
    print(
        f"{'kernels':>10}{'columns':>8}{'step':>9}{'launched':>10}{'weights':>9}{'launches':>9}"
        + "".join(f"{part:>15}" for part in parts)
    )
    for kernels in sorted(options.kernels, key=KERNELS.index):
        if kernels in ("model", "both"):
            why_not = why_no_kernels(device, model)
            if why_not:
                print(f"{kernels:>10}  not measured: {why_not}")
                continue
            use_kernels(model)
        with torch.no_grad(), shared_prefixes(model), _ranges(), _attention(kernels in ("attention", "both")):
            for columns in options.columns:
                step, launched = _steps(model, load, options.context, columns)
                taken, eager = _seconds(step, gpu), _seconds(launched, gpu)
                found, launches, table = _profiled(launched, gpu)
                found["no kernel"] = taken - sum(found.values())
                print(
                    f"{kernels:>10}{columns:>8}{1e3 * taken:>9.3f}{1e3 * eager:>10.3f}{1e3 * floor:>9.3f}{launches:>9}"
                    + "".join(f"{1e3 * found[part]:>15.3f}" for part in parts),
                    flush=True,
                )
                if options.table:
                    print(table)


def _steps(model: Any, load: Workload, context: int, columns: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A step as in training, and launched kernel by kernel; both can be repeated at the last column."""
    tree = prompt_tree(load.prompts(context, seed=0))
    sampler = SharedSampler(model, (), Sampling(1.0, 1.0, columns + 1))
    rows = list(range(load.rollouts))
    limits, begun = [columns + 1] * len(rows), [0] * len(rows)
    decoding = _Decoding(sampler, tree, sampler._prefill(tree), rows, 0, limits, begun, UNBOUNDED)
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


@contextmanager
def _attention(fused: bool) -> Iterator[None]:
    """Attention with its own kernels or without."""
    own = level_attention.has_kernel
    if not fused:
        level_attention.has_kernel = lambda *_: False
    try:
        yield
    finally:
        level_attention.has_kernel = own


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


def _profiled(work: Callable[[], None], gpu: bool) -> tuple[dict[str, float], int, str]:
    """Seconds of each part, the number of kernels, and the profiler's table."""
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]) as found:
        work()
        if gpu:
            torch.cuda.synchronize()
    averages = found.key_averages()
    device, host = ("device_time_total", "self_device_time_total"), ("cpu_time_total", "self_cpu_time_total")
    whole, own = device if gpu else host

    def spent(names: Sequence[str], kind: str) -> float:
        on_host = (event for event in averages if event.device_type == DeviceType.CPU)
        return sum(getattr(event, kind) for event in on_host if event.key in names) / 1e6

    kernels = _kernels(found.events()) if gpu else []
    parts = {"linear layers": spent(PRODUCTS, own)}
    for part in NAMED:
        parts[part] = sum(took for took, of in kernels if of == part) / 1e6 if gpu else spent([part], whole)
    total = sum(took for took, _ in kernels) if gpu else sum(getattr(event, own) for event in averages)
    parts["rest"] = total / 1e6 - sum(parts.values())
    return parts, len(kernels), averages.table(sort_by=own, row_limit=30)


def _kernels(events: Any) -> list[tuple[float, str]]:
    """Microseconds of every kernel, and the named part that it ran in. They are matched by time: the profiler does not
    attribute every kernel of Triton to the range it was launched in."""
    on_device = [event for event in events if event.device_type == DeviceType.CUDA]
    ranges = sorted(
        (event.time_range.start, event.time_range.end, event.name) for event in on_device if event.name in NAMED
    )
    starts = [start for start, _, _ in ranges]
    found = []
    for event in on_device:
        if event.name in NAMED:
            continue
        place = bisect_right(starts, event.time_range.start) - 1
        inside = place >= 0 and event.time_range.start < ranges[place][1]
        part = ranges[place][2] if inside else "attention" if event.name in ATTENTION else ""
        found.append((event.time_range.elapsed_us(), part))
    return found


if __name__ == "__main__":
    main()
