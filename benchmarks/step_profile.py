"""What the update of a step spends its time on, pass forward and pass backward."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from fastslow.engine.local.trainer import Trainer

SHOWN = 16
"""Kernels that are listed by name."""


class Trace:
    """Follows the passes of a trainer from a step on."""

    def __init__(self, trainer: Any, first_step: int) -> None:
        self.gpu = torch.cuda.is_available()
        self.seconds: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        self.trainer, self.first_step = trainer, first_step
        self._follow(trainer, "loss" if isinstance(trainer, Trainer) else "_compute_loss", "forward")
        self._follow(trainer.accelerator, "backward", "backward")

    def _follow(self, owner: Any, method: str, name: str) -> None:
        own = getattr(owner, method)

        def traced(*arguments: Any, **named: Any) -> Any:
            done = self.trainer.version if isinstance(self.trainer, Trainer) else self.trainer.state.global_step
            if done < self.first_step:
                return own(*arguments, **named)
            activity = ProfilerActivity.CUDA if self.gpu else ProfilerActivity.CPU
            with profile(activities=[activity]) as found:
                started = time.perf_counter()
                result = own(*arguments, **named)
                if self.gpu:
                    torch.cuda.synchronize()
                self.seconds[name] += time.perf_counter() - started
            for event in found.key_averages():
                spent = event.self_device_time_total if self.gpu else event.self_cpu_time_total
                self.kernels[f"{name}: {event.key}"] += spent / 1e6
            return result

        setattr(owner, method, traced)

    def words(self) -> str:
        """A line for each kernel that takes long, with its share of the time."""
        total = sum(self.seconds.values())
        lines = [", ".join(f"{name} {seconds:.3f} s" for name, seconds in self.seconds.items())]
        listed = self.kernels.most_common(SHOWN)
        rest = sum(self.kernels.values()) - sum(spent for _, spent in listed)
        idle = total - sum(self.kernels.values())
        for name, spent in [*listed, ("all other kernels", rest), ("no kernel runs", idle)]:
            lines.append(f"{spent:8.3f} s {spent / total:6.1%}  {name[:200]}")
        return "\n".join(lines)
