"""The conclusion of each study: a finding, a figure and a few numbers over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from fastslow.recipe import Recipe
from fastslow.runs.folder import RunFolder
from fastslow.study.arms import Arm
from fastslow.study.comparison import Comparison
from fastslow.study.figures.comparison import divergence_figure, divergence_title, reward_figure
from fastslow.study.figures.studies import StagedCurve, asymptote_figure, ends_figure, stages_figure, steps_figure
from fastslow.study.intervals import Estimate, over_seeds
from fastslow.study.sentences import largest_margin, oriented, ranking, title

Numbers = list[tuple[str, str, Estimate, int]]
"""Arm, measure, estimate and the digits to show."""


@dataclass(frozen=True)
class Conclusion:
    """What a study found."""

    finding: str
    figure: Any
    numbers: Numbers

    def rows(self) -> list[dict[str, Any]]:
        """The numbers, for a file."""
        return [{"arm": arm, "measure": measure, **asdict(found)} for arm, measure, found, _ in self.numbers]

    def table(self, caption: str | None = None) -> Table:
        """The numbers, for the terminal."""
        table = Table(title=self.finding, title_justify="left", caption=caption, caption_justify="left")
        table.add_column("")
        table.add_column("measured")
        table.add_column("95% over seeds", justify="right")
        for arm, measure, found, digits in self.numbers:
            table.add_row(Text(arm), Text(measure), Text(found.words(digits)))
        return table


def data_efficiency(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    numbers: Numbers = _ends(found)
    for arm in found.others:
        for cost in ("steps", "rollouts"):
            direction, saved = oriented(found.saving(arm, cost))
            numbers.append(
                (arm.label, f"times {direction or 'fewer'} {cost} to the peak of {found.baseline.label}", saved, 1)
            )
    return Conclusion(title(found), reward_figure(found, subtitle), numbers)


def asymptote(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    limits = {arm.label: found.asymptote(arm) for arm in arms}
    numbers: Numbers = []
    said = []
    for arm in arms:
        limit = limits[arm.label]
        known = not isinstance(limit, str) and limit.determined
        if isinstance(limit, str):
            estimate = Estimate(math.nan, seeds=0, note=limit)
        elif limit.determined:
            estimate = Estimate(limit.limit, limit.low, limit.high, len(arm.curves))
        else:
            estimate = Estimate(math.nan, seeds=0, note=f"not determined: {limit.doubts[0]}")
        numbers.append((arm.label, "asymptote", estimate, 2))
        said.append(f"{arm.label} {estimate.mean:.2f}" if known else f"{arm.label} not determined")
    finding = f"Asymptote: {', '.join(said)}"
    return Conclusion(finding, asymptote_figure(arms, limits, finding, subtitle), [*_ends(found), *numbers])


def divergence(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    numbers: Numbers = _ends(found)
    for arm in arms:
        numbers.append((arm.label, "KL from base at the end", found.last(arm, "kls"), 3))
        numbers.append((arm.label, f"KL at the peak of {found.baseline.label}", found.kl_at_peak(arm), 3))
    for arm in found.others:
        kl = found.shared_kl(arm)
        numbers += [
            (each.label, f"reward within a KL of {kl:.3f}", found.reward_at_kl(each, kl), 2)
            for each in (arm, found.baseline)
        ]
    return Conclusion(divergence_title(found), divergence_figure(found, subtitle), numbers)


def plasticity(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, arms[0].label)
    ends = ", ".join(f"{found.end(arm).mean:.2f} {arm.label}" for arm in arms)
    finding = f"RL on a new task reaches {ends}; {largest_margin(found)}"
    numbers = [*_ends(found), *((arm.label, f"less {arms[0].label}", found.margin(arm), 2) for arm in found.others)]
    return Conclusion(finding, steps_figure(arms, finding, subtitle), numbers)


def continual(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    stages = _stages(arms)
    staged = {arm.label: _staged(arm, [name for name, _, _ in stages]) for arm in arms}
    numbers: Numbers = []
    ends: dict[str, list[float]] = {arm.label: [] for arm in arms}
    shares: dict[str, list[float]] = {arm.label: [] for arm in arms}
    for name, _, end in stages:
        reached = {
            arm.label: over_seeds([_at(curve, end) for curve in staged[arm.label][name]], 0.0, 1.0) for arm in arms
        }
        best = max((estimate.mean for estimate in reached.values() if not math.isnan(estimate.mean)), default=0.0)
        for label, estimate in reached.items():
            numbers.append((label, f"{name}, at the end of its stage", estimate, 2))
            if math.isnan(estimate.mean):  # the run has not reached this stage
                continue
            ends[label].append(estimate.mean)
            if best > 0:
                shares[label].append(estimate.mean / best)
    for arm in arms:
        numbers.append((arm.label, "share of the best arm, mean over stages", Estimate(_mean(shares[arm.label])), 2))
    said = ", ".join(
        f"{label} {_mean(values):.2f}" + (f" (of the first {len(values)})" if len(values) < len(stages) else "")
        for label, values in ends.items()
    )
    finding = f"When the task changes, reward at the end of a stage is on average: {said}"
    return Conclusion(finding, stages_figure(arms, staged, stages, finding, subtitle), numbers)


def kept(arms: Sequence[Arm]) -> Numbers:
    """The reward at the end of a run on the tasks of earlier stages."""
    stages = _stages(arms)
    names = [name for name, _, _ in stages]
    end = stages[-1][2]
    return [
        (arm.label, f"{name}, at the end of the run", over_seeds([_at(curve, end) for curve in curves], 0.0, 1.0), 2)
        for name in names[:-1]
        for arm in arms
        for curves in [_staged(arm, names)[name]]
    ]


def star_graph(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    left = {}
    numbers: Numbers = _ends(found)
    for arm in arms:
        steps = [
            next((s for s, r in zip(c.steps, c.rewards, strict=True) if r > 0), math.inf) for c in arm.curves.values()
        ]
        known = [step for step in steps if step < math.inf]
        note = f"({len(known)} of {len(steps)} seeds)"
        left[arm.label] = len(known)
        mean = sum(known) / len(known) if known else math.nan
        numbers.append((arm.label, "first evaluation above zero, step", Estimate(mean, seeds=len(known), note=note), 0))
    said = ", ".join(f"{arm.label} with {left[arm.label]} of {len(arm.curves)} seeds" for arm in arms)
    finding = f"Leaves zero reward: {said}"
    return Conclusion(finding, steps_figure(arms, finding, subtitle), numbers)


def ceiling(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    return _ranked(found, found.arms, subtitle)


def ablations(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    """Compared with FST under the unchanged recipe."""
    found = Comparison.of(arms, arms[0].label)
    conclusion = _ranked(found, arms, subtitle)
    margins = sorted(((found.margin(arm), arm.label) for arm in found.others), key=lambda each: -abs(each[0].mean))
    settled = [f"{label} by {margin.words()}" for margin, label in margins if margin.settled(0)]
    finding = f"Significantly different from FST over these seeds: {', '.join(settled) or 'none'}"
    ends = {arm.label: found.end(arm) for arm in arms}
    return Conclusion(finding, ends_figure(arms, ends, finding, subtitle), conclusion.numbers)


def reuse(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, arms[0].label)
    numbers: Numbers = _ends(found)
    numbers += [(arm.label, f"less {found.baseline.label}", found.margin(arm), 2) for arm in found.others]
    for arm in arms:
        numbers.append((arm.label, "training rollouts", found.last(arm, "rollouts"), 0))
        numbers.append((arm.label, "seconds a step", _seconds(arm), 2))
        numbers.append((arm.label, "share of slow rollouts from the cache", _reused(arm), 2))
    spent = ", ".join(f"{arm.label} {_seconds(arm).mean:.1f}" for arm in arms)
    finding = f"Seconds a step: {spent}; rewards at the end: {largest_margin(found)}"
    return Conclusion(finding, reward_figure(found, subtitle), numbers)


CONCLUSIONS: dict[str, Callable[[Sequence[Arm], str], Conclusion]] = {
    "data-efficiency": data_efficiency,
    "asymptote": asymptote,
    "divergence": divergence,
    "plasticity": plasticity,
    "continual": continual,
    "star-graph": star_graph,
    "ceiling": ceiling,
    "ablations": ablations,
    "reuse": reuse,
}


def _ends(found: Comparison) -> Numbers:
    return [(arm.label, "reward at the end", found.end(arm), 2) for arm in found.arms]


def _ranked(found: Comparison, arms: Sequence[Arm], subtitle: str) -> Conclusion:
    ends = {arm.label: found.end(arm) for arm in arms}
    finding = f"{ranking(found)}; {largest_margin(found)}"
    numbers = [
        *_ends(found),
        *((arm.label, f"less {found.baseline.label}", found.margin(arm), 2) for arm in found.others),
    ]
    return Conclusion(finding, ends_figure(arms, ends, finding, subtitle), numbers)


def _stages(arms: Sequence[Arm]) -> list[tuple[str, int, int]]:
    """Task, first and last step of each stage."""
    recipe = RunFolder.open(next(iter(arms[0].folders.values()))).recipe
    stages, first = [], 0
    for name, stage in zip(_stage_names(recipe), recipe.stages, strict=True):
        stages.append((name, first, first + stage.steps))
        first += stage.steps
    return stages


def _stage_names(recipe: Recipe) -> list[str]:
    """The task of each stage, with the options in which it differs from others of the same name."""
    names = []
    for stage in recipe.stages:
        others = [other.options for other in recipe.stages if other.name == stage.name]
        own = [
            str(value) for key, value in stage.options.items() if any(options.get(key) != value for options in others)
        ]
        names.append(f"{stage.name} ({', '.join(own)})" if own else stage.name)
    return names


def _staged(arm: Arm, names: Sequence[str]) -> dict[str, list[StagedCurve]]:
    """By task, then by seed: rewards under the best context, or under the seed text where there is no better one."""
    found: dict[str, list[StagedCurve]] = {name: [] for name in names}
    for folder in arm.folders.values():
        rows = RunFolder.open(folder).rows("evals")
        tasks = [label.removeprefix("seed on ") for label in rows[0]["results"] if label.startswith("seed on ")]
        for name, task in zip(names, tasks, strict=True):
            rewards = [
                row["results"].get(f"best context on {task}", row["results"][f"seed on {task}"])["mean"] for row in rows
            ]
            found[name].append(StagedCurve(tuple(row["step"] for row in rows), tuple(rewards)))
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _at(curve: StagedCurve, step: int) -> float:
    return next((r for s, r in zip(curve.steps, curve.rewards, strict=True) if s == step), math.nan)


def _seconds(arm: Arm) -> Estimate:
    return over_seeds([curve.seconds[-1] / max(curve.steps[-1], 1) for curve in arm.curves.values()], 0.0)


def _reused(arm: Arm) -> Estimate:
    shares = []
    for folder in arm.folders.values():
        row = RunFolder.open(folder).rows("evals")[-1]
        reused = row.get("rollouts_reused", 0)
        shares.append(reused / max(row["rollouts_slow"] + reused, 1))
    return over_seeds(shares, 0.0, 1.0)
