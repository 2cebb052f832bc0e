"""Seconds by phase and peak memory of a step."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

PHASES = ("sampling", "sync", "grading", "reference", "update")


class Clock(TrainerCallback):
    """Every second of a step belongs to one phase: a phase inside another stops that one's clock, the rest is `update`."""

    def __init__(self) -> None:
        self.gpu = torch.cuda.is_available()
        self.seconds: Counter[str] = Counter()
        self.rows: list[dict[str, float]] = []
        self.running: list[str] = ["update"]
        self.last = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._book()
        self.running.append(name)
        try:
            yield
        finally:
            self._book()
            self.running.pop()

    def wrap(self, owner: Any, method: str, name: str | Callable[..., str | None]) -> None:
        """Count the calls of a method to a phase; a function may tell it by their arguments."""
        own = getattr(owner, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            phase = name(*arguments, **named) if callable(name) else name
            if phase is None:
                return own(*arguments, **named)
            with self.phase(phase):
                return own(*arguments, **named)

        setattr(owner, method, timed)

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.start()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._book()
        self.rows.append({**{phase: self.seconds[phase] for phase in PHASES}, "memory": self._peak()})
        print(f"  step {len(self.rows)}: {sum(self.seconds.values()):.2f} s", flush=True)
        self.start()

    def start(self) -> None:
        self._book()
        self.seconds.clear()
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def _book(self) -> None:
        if self.gpu:
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.seconds[self.running[-1]] += now - self.last
        self.last = now

    def _peak(self) -> float:
        """Bytes at most since the last step: what PyTorch has allocated of a GPU, else what the process holds (Linux)."""
        if self.gpu:
            return float(torch.cuda.max_memory_allocated())
        with suppress(OSError):
            found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            return 1024.0 * float(found[1]) if found else float("nan")
        return float("nan")
