"""How long a run would take, and how much memory: `fastslow check RECIPE --probe` plays its first steps.

The short run has the recipe's own settings, and a search that ends after a few new texts. Seconds and tokens of a rollout
are measured for each kind (schedule.py), and the seconds of an update, and then multiplied. Evolved texts are longer than the
seed text, and a policy in training learns to answer longer or shorter: no probe knows by how much.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from fastslow.base.text import duration
from fastslow.engine.kind import Finding, find_engine
from fastslow.launch import start
from fastslow.launch.assembly import changed
from fastslow.launch.schedule import KINDS, Span, count_rollouts, count_steps
from fastslow.models.memory import GIB
from fastslow.recipe import Recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Entry, sum_rows
from fastslow.runs.view import View
from fastslow.tasks import Task

STEPS = 4
"""Of the short run; the first is slower."""
KIB = 1024
TEXTS = 2
"""New texts that its search can pay for."""


@dataclass(frozen=True)
class Rate:
    """What one rollout of a kind takes."""

    seconds: float
    tokens: float


@dataclass(frozen=True)
class Probe:
    """What the short run took, and what the whole would: from least to most."""

    rates: dict[str, Rate]
    update: float
    """Seconds of a step that are not rollouts."""
    first: float
    """Seconds that the first step took more than another."""
    seconds: tuple[float, float]
    tokens: tuple[int, int]
    memory: int
    """Bytes at most: of the GPU, or of this process."""
    device: str
    spent: Entry

    def findings(self) -> Iterator[Finding]:
        slow = self.rates.get("slow")
        each = (
            f"{slow.seconds:.3g} s and {slow.tokens:.0f} tokens a rollout, {self.update:.3g} s an update"
            if slow
            else ""
        )
        yield Finding(
            "probe",
            f"{self.spent.rollouts:,} rollouts in {duration(self.spent.seconds)}{f': {each}' if each else ''}",
        )
        yield Finding("time", f"{_between(*map(duration, self.seconds))}, loading not counted")
        least, most = (f"{number:,}" for number in self.tokens)
        yield Finding("tokens", f"{_between(least, most)}, if texts and answers stay as long as in the probe")
        yield Finding("memory", f"{self.memory / GIB:.2f} GiB of the {self.device} at most, in the probe")


class _Watch(View):
    """Says how far the short run is."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def cycle(self, cycle: int, status: str) -> None:
        self.say(f"the search for texts: {status}")

    def doing(self, what: str) -> None:
        self.say(what)

    def step(self, step: int, total: int, metrics: dict[str, Any]) -> None:
        self.say(f"step {step} of {total} is done")


def probe(recipe: Recipe, task: Task, say: Callable[[str], None] = lambda text: None) -> Probe:
    """Play the first steps in a folder that is removed, and multiply; `say` hears how far it is."""
    if recipe.slow.steps <= STEPS:
        say(f"the run has {recipe.slow.steps} steps, and the probe plays as many: it takes nearly as long as the run")
    say("loading the model")
    gpu = _gpu(recipe)
    if gpu:
        gpu.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe"
        start.train(_short(recipe), path, _Watch(say))
        run = RunFolder.open(path)
        rows, metrics = run.rows("ledger"), run.rows("metrics")
    counted, steps = count_rollouts(recipe, task), count_steps(recipe, task)
    memory = gpu.max_memory_reserved() if gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    return multiplied(counted, steps, rows, metrics, memory, "GPU" if gpu else "process")


def _short(recipe: Recipe) -> Recipe:
    """The first steps of a run, whose evaluations fill no more than one batch."""
    fast, measured = recipe.fast, recipe.evaluation
    search = TEXTS * (2 * fast.minibatch + fast.anchors) * fast.samples
    short = changed(
        recipe,
        slow={"steps": min(STEPS, recipe.slow.steps), "patience": None},
        fast={"budget": min(fast.budget, search)},
        evaluation={"problems": min(measured.problems, max(1, recipe.sampling.batch // measured.k))},
        output={"report_to": []},
    )
    return short.model_copy(update={"rollouts": None})


def multiplied(
    counted: Mapping[str, Span],
    steps: Span,
    rows: Sequence[Mapping[str, Any]],
    metrics: Sequence[Mapping[str, Any]],
    memory: int,
    device: str,
) -> Probe:
    """From the ledger and the metrics of a short run."""
    later = [row for row in rows if row["step"] > 1]
    rates = {kind: rate for kind in KINDS if (rate := _rate(kind, later) or _rate(kind, rows))}
    unseen = next(iter(rates.values()), Rate(0.0, 0.0))
    updates = [sum(row["phases"].get(name, 0.0) for name in ("update", "sync")) for row in metrics]
    update = median(updates[1:] or updates or [0.0])
    first = max(sum(updates[:1]) - update, 0.0)

    def whole(end: Callable[[Span], int]) -> tuple[float, int]:
        each = [(rates.get(kind, unseen), end(span)) for kind, span in counted.items()]
        seconds = sum(rate.seconds * count for rate, count in each) + update * end(steps) + first
        return seconds, round(sum(rate.tokens * count for rate, count in each))

    (low, fewest), (high, most) = whole(lambda span: span.least), whole(lambda span: span.most)
    spent = sum_rows(rows).total()
    return Probe(rates, update, first, (low, high), (fewest, most), memory, device, spent)


def _rate(kind: str, rows: Sequence[Mapping[str, Any]]) -> Rate | None:
    """Of a search, what reflecting takes belongs to its rollouts."""
    ledger = sum_rows(rows)
    spent, asked = ledger.total(KINDS[kind]), ledger["reflection"] if kind == "search" else Entry()
    if not spent.rollouts:
        return None
    tokens = spent.prompt_tokens + spent.completion_tokens
    return Rate((spent.seconds + asked.seconds) / spent.rollouts, tokens / spent.rollouts)


def _gpu(recipe: Recipe) -> Any:
    """torch.cuda where this process computes on a GPU."""
    if not find_engine(recipe).local:
        return None
    from fastslow.models.load import choose_device

    if choose_device(recipe.model.device) != "cuda":
        return None
    import torch

    return torch.cuda


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"
