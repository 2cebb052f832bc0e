"""The figures of studies and of the quickstart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.evaluation.asymptote import Asymptote
from fastslow.recipe.model import Method
from fastslow.runs import files
from fastslow.study.arms import LOOKS, Arm
from fastslow.study.curves import Curve
from fastslow.study.figures.drawing import draw_arm, draw_estimate, dress, dress_estimates, new_figure, titled
from fastslow.study.intervals import over_seeds
from fastslow.study.measures import Comparison
from fastslow.study.sentences import headline


def draw_curves(curves: Mapping[Method, Sequence[Curve]], target: Path, subtitle: str) -> None:
    """Write a PNG of validation reward against training rollouts: a line for every seed, and the mean of several seeds."""
    figure = new_figure((8, 5))
    axes = figure.subplots()
    for method, seeds in curves.items():
        draw_arm(axes, Arm(LOOKS[method].name, method, dict(enumerate(seeds))), "rollouts", "rewards")
    dress(axes, "training rollouts, both loops", "validation reward (0 to 1)")
    axes.set(ylim=(-0.02, 1.02))
    axes.set_title(headline(curves), loc="left", fontsize=11, weight="bold", pad=24)
    axes.annotate(subtitle, (0, 1), (0, 8), "axes fraction", "offset points", fontsize=9.5, color="0.3")
    figure.legend(loc="outside lower left", frameon=False)
    with files.temporary(target) as unfinished:
        figure.savefig(unfinished, format="png", dpi=150)


def ends_figure(comparison: Comparison, finding: str, subtitle: str) -> Any:
    """Reward at the end, arm by arm: the mean with its interval, and every seed as a faint point."""
    arms = comparison.arms
    figure = new_figure((9, 1.8 + 0.4 * len(arms)))
    axes = figure.subplots()
    for place, arm in enumerate(arms):
        look, end = arm.look, comparison.end(arm)
        seeds = [curve.rewards[-1] for curve in arm.curves.values()]
        axes.plot(seeds, [place] * len(seeds), color=look.colour, marker="|", linestyle="", alpha=0.6, markersize=9)
        draw_estimate(axes, place, end, look, f"{end.mean:.2f}")
    dress_estimates(axes, [arm.label for arm in arms])
    axes.set(xlim=(0, 1), xlabel="validation reward at the end (0 to 1)")
    return titled(figure, finding, subtitle)


def steps_figure(arms: Sequence[Arm], finding: str, subtitle: str) -> Any:
    """Reward against steps, in one panel."""
    figure = new_figure((9, 5))
    axes = figure.subplots()
    for arm in arms:
        draw_arm(axes, arm, "steps", "rewards")
    dress(axes, "optimizer steps", "validation reward (0 to 1)")
    if not any(max(curve.rewards) for arm in arms for curve in arm.curves.values()):
        axes.set_ylim(-0.02, 1.02)  # lines at zero set no scale
    return titled(figure, finding, subtitle, legend=True)


def asymptote_figure(arms: Sequence[Arm], limits: Mapping[str, Asymptote | str], finding: str, subtitle: str) -> Any:
    """Every evaluation, the fitted curve, and to the right the asymptote with its interval where it is determined."""
    figure = new_figure((9, 5))
    axes = figure.subplots()
    last = max(curve.rollouts[-1] for arm in arms for curve in arm.curves.values())
    for place, arm in enumerate(arms):
        look, limit = arm.look, limits[arm.label]
        for curve in arm.curves.values():
            axes.plot(curve.rollouts, curve.rewards, color=look.colour, marker=look.marker, linestyle="", alpha=0.45)
        if isinstance(limit, str):
            continue
        spent = np.linspace(1, last, 200)
        said = f"asymptote {limit.limit:.2f}" if limit.determined else "asymptote not determined"
        axes.plot(spent, limit.at(spent), color=look.colour, label=f"{arm.label}: {said}")
        if limit.determined:
            at = last * (1.04 + 0.02 * place)
            axes.plot([at, at], [limit.low, limit.high], color=look.colour, linewidth=3, alpha=0.7)
    dress(axes, "training rollouts, both loops", "validation reward (0 to 1)")
    return titled(figure, finding, subtitle, legend=True)


def stages_figure(
    arms: Sequence[Arm],
    staged: Mapping[str, Mapping[str, Sequence[Mapping[int, float]]]],
    stages: Sequence[tuple[str, int, int]],
    finding: str,
    subtitle: str,
) -> Any:
    """A panel for each task; the stage in which it is trained is shaded. `staged` has the rewards of each seed by step, by
    arm's label and task; stages are (task, first step, last step)."""
    tasks = list(dict.fromkeys(task for task, _, _ in stages))
    figure = new_figure((9, 1.2 + 2.1 * len(tasks)))
    panels = figure.subplots(len(tasks), 1, sharex=True, squeeze=False)[:, 0]
    for panel, task in zip(panels, tasks, strict=True):
        for name, first, end in stages:
            if name == task:
                panel.axvspan(first, end, color="0.92", linewidth=0)
        for arm in arms:
            look, curves = arm.look, staged[arm.label][task]
            for curve in curves:
                panel.plot(list(curve), list(curve.values()), color=look.colour, alpha=0.4, linewidth=0.8)
            means = [over_seeds(rewards).mean for rewards in zip(*(curve.values() for curve in curves), strict=False)]
            panel.plot(
                list(curves[0])[: len(means)], means, color=look.colour, marker=look.marker,
                linestyle=arm.line, markersize=5, label=arm.label if task == tasks[0] else None,
            )  # fmt: skip
        dress(panel, "optimizer steps" if task == tasks[-1] else "", "reward")
        panel.set_ylim(-0.02, 1.02)
        panel.annotate(task, (0.99, 0.92), xycoords="axes fraction", ha="right", va="top", fontsize=9, weight="bold")
    figure.legend(loc="outside lower left", frameon=False, ncols=len(arms))
    return titled(figure, finding, subtitle)
