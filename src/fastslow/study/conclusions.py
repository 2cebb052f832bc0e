"""The conclusion of each study: a finding, a figure and a few numbers over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from fastslow.recipe import Recipe
from fastslow.study import figures
from fastslow.study.arms import Arm
from fastslow.study.curves import Estimate, over_seeds, unknown
from fastslow.study.measures import Comparison
from fastslow.study.sentences import divergence_title, largest_margin, oriented, ranking, shown, title

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
        rows = [(arm, measure, found.words(digits)) for arm, measure, found, digits in self.numbers]
        return shown(self.finding, ("", "measured", "95% over seeds"), rows, left=2, caption=caption)


def data_efficiency(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    numbers = _ends(found)
    for arm in found.others:
        for cost in ("steps", "rollouts"):
            direction, saved = oriented(found.saving(arm, cost))
            measure = f"times {direction or 'fewer'} {cost} to {found.level_words}"
            numbers.append((arm.label, measure, saved, 1))
    return Conclusion(title(found), figures.reward_figure(found, subtitle), numbers)


def asymptote(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    limits = {arm.label: found.asymptote(arm) for arm in arms}
    numbers, said = _ends(found), []
    for arm in arms:
        limit, words = limits[arm.label], "not determined"
        if isinstance(limit, str):
            estimate = unknown(limit)
        elif limit.determined:
            estimate, words = Estimate(limit.limit, limit.low, limit.high, len(arm.curves)), f"{limit.limit:.2f}"
        else:
            estimate = unknown(f"not determined: {limit.doubts[0]}")
        numbers.append((arm.label, "asymptote", estimate, 2))
        said.append(f"{arm.label} {words}")
    finding = f"Asymptote: {', '.join(said)}"
    return Conclusion(finding, figures.asymptote_figure(arms, limits, finding, subtitle), numbers)


def divergence(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    numbers = _ends(found)
    for arm in arms:
        numbers.append((arm.label, "KL from base at the end", found.last(arm, "kls"), 3))
        numbers.append((arm.label, f"KL at {found.level_words}", found.kl_at_level(arm), 3))
    for arm in found.others:
        kl = found.shared_kl(arm)
        for each in (arm, found.baseline):
            numbers.append((each.label, f"reward within a KL of {kl:.3f}", found.reward_at_kl(each, kl), 2))
    return Conclusion(divergence_title(found), figures.divergence_figure(found, subtitle), numbers)


def plasticity(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, arms[0].label)
    ends = ", ".join(f"{found.end(arm).mean:.2f} {arm.label}" for arm in arms)
    finding = f"RL on a new task reaches {ends}; {largest_margin(found)}"
    return Conclusion(finding, figures.lines_figure(arms, "steps", finding, subtitle), _margins(found))


def continual(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    stages = _stages(arms)
    staged = _staged(arms, stages)
    numbers: Numbers = []
    ends: dict[str, list[float]] = {arm.label: [] for arm in arms}
    shares: dict[str, list[float]] = {arm.label: [] for arm in arms}
    for name, _, end in stages:
        reached = {arm.label: _reached(staged[arm.label][name], end) for arm in arms}
        best = max((estimate.mean for estimate in reached.values() if not math.isnan(estimate.mean)), default=0.0)
        for label, estimate in reached.items():
            numbers.append((label, f"{name}, at the end of its stage", estimate, 2))
            if math.isnan(estimate.mean):  # the run has not reached this stage
                continue
            ends[label].append(estimate.mean)
            if best > 0:
                shares[label].append(estimate.mean / best)
    for label, values in shares.items():
        numbers.append((label, "share of the best arm, mean over stages", Estimate(_mean(values)), 2))
    said = ", ".join(
        f"{label} {_mean(values):.2f}" + (f" (of the first {len(values)})" if len(values) < len(stages) else "")
        for label, values in ends.items()
    )
    finding = f"When the task changes, reward at the end of a stage is on average: {said}"
    return Conclusion(finding, figures.stages_figure(arms, staged, stages, finding, subtitle), numbers)


def kept(arms: Sequence[Arm]) -> Numbers:
    """The reward at the end of a run on the tasks of earlier stages."""
    stages = _stages(arms)
    staged, end = _staged(arms, stages), stages[-1][2]
    return [
        (arm.label, f"{name}, at the end of the run", _reached(staged[arm.label][name], end), 2)
        for name, _, _ in stages[:-1]
        for arm in arms
    ]


def star_graph(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    numbers, said = _ends(Comparison.of(arms, "rl")), []
    for arm in arms:
        steps = [curve.cost(math.ulp(0), "steps") for curve in arm.curves.values()]  # the first reward above zero
        known = [step for step in steps if step < math.inf]
        mean = sum(known) / len(known) if known else math.nan
        left = Estimate(mean, seeds=len(known), note=f"({len(known)} of {len(steps)} seeds)")
        numbers.append((arm.label, "first evaluation above zero, step", left, 0))
        said.append(f"{arm.label} with {len(known)} of {len(steps)} seeds")
    finding = f"Leaves zero reward: {', '.join(said)}"
    return Conclusion(finding, figures.lines_figure(arms, "steps", finding, subtitle), numbers)


def ceiling(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, "rl")
    return _at_the_end(found, f"{ranking(found)}; {largest_margin(found)}", subtitle)


def ablations(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    """Compared with FST under the unchanged recipe."""
    found = Comparison.of(arms, arms[0].label)
    margins = sorted(((found.margin(arm), arm.label) for arm in found.others), key=lambda each: -abs(each[0].mean))
    settled = [f"{label} by {margin.words()}" for margin, label in margins if margin.settled(0)]
    finding = f"Significantly different from FST over these seeds: {', '.join(settled) or 'none'}"
    return _at_the_end(found, finding, subtitle)


def reuse(arms: Sequence[Arm], subtitle: str) -> Conclusion:
    found = Comparison.of(arms, arms[0].label)
    numbers, spent = _margins(found), []
    for arm in arms:
        seconds = arm.mean(lambda curve: curve.seconds[-1] / max(curve.steps[-1], 1))
        last = [run.rows("evals")[-1] for run in arm.runs]
        reused = [(row.get("rollouts_reused", 0), row["rollouts_slow"]) for row in last]
        shares = over_seeds([cached / max(played + cached, 1) for cached, played in reused], 0.0, 1.0)
        numbers.append((arm.label, "training rollouts", found.last(arm, "rollouts"), 0))
        numbers.append((arm.label, "seconds a step", seconds, 2))
        numbers.append((arm.label, "share of slow rollouts from the cache", shares, 2))
        spent.append(f"{arm.label} {seconds.mean:.1f}")
    finding = f"Seconds a step: {', '.join(spent)}; rewards at the end: {largest_margin(found)}"
    return Conclusion(finding, figures.reward_figure(found, subtitle), numbers)


_CONCLUSIONS = (data_efficiency, asymptote, divergence, plasticity, continual, star_graph, ceiling, ablations, reuse)
CONCLUSIONS: dict[str, Callable[[Sequence[Arm], str], Conclusion]] = {
    conclude.__name__.replace("_", "-"): conclude for conclude in _CONCLUSIONS
}


def _ends(found: Comparison) -> Numbers:
    return [(arm.label, "reward at the end", found.end(arm), 2) for arm in found.arms]


def _margins(found: Comparison) -> Numbers:
    apart = f"difference from {found.baseline.label}"
    return [*_ends(found), *((arm.label, apart, found.margin(arm), 2) for arm in found.others)]


def _at_the_end(found: Comparison, finding: str, subtitle: str) -> Conclusion:
    return Conclusion(finding, figures.ends_figure(found, finding, subtitle), _margins(found))


def _stages(arms: Sequence[Arm]) -> list[tuple[str, int, int]]:
    """Task, first and last step of each stage."""
    recipe, stages, first = arms[0].runs[0].recipe, [], 0
    for name, stage in zip(_stage_names(recipe), recipe.stages, strict=True):
        stages.append((name, first, first + stage.steps))
        first += stage.steps
    return stages


def _stage_names(recipe: Recipe) -> list[str]:
    """The task of each stage, with the options in which it differs from others of the same name."""
    names = []
    for stage in recipe.stages:
        others = [other.options for other in recipe.stages if other.name == stage.name]
        own = [str(value) for key, value in stage.options.items() if any(each.get(key) != value for each in others)]
        names.append(f"{stage.name} ({', '.join(own)})" if own else stage.name)
    return names


def _staged(
    arms: Sequence[Arm], stages: Sequence[tuple[str, int, int]]
) -> dict[str, dict[str, list[dict[int, float]]]]:
    """By arm's label and task, for each seed: rewards by step, under the best context or, without a better one, the seed
    text."""
    found: dict[str, dict[str, list[dict[int, float]]]] = {}
    for arm in arms:
        found[arm.label] = {name: [] for name, _, _ in stages}
        for run in arm.runs:
            rows = run.rows("evals")
            tasks = [label.removeprefix("seed on ") for label in rows[0]["results"] if label.startswith("seed on ")]
            for (name, _, _), task in zip(stages, tasks, strict=True):
                best, seed = f"best context on {task}", f"seed on {task}"
                rewards = {row["step"]: row["results"].get(best, row["results"][seed])["mean"] for row in rows}
                found[arm.label][name].append(rewards)
    return found


def _reached(curves: Sequence[dict[int, float]], step: int) -> Estimate:
    return over_seeds([curve.get(step, math.nan) for curve in curves], 0.0, 1.0)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan
