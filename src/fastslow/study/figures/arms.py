"""The figures of arms: in a report, in studies and in the quickstart. Each title states the finding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.evaluation.asymptote import Asymptote
from fastslow.recipe.model import Method
from fastslow.runs import files
from fastslow.study.arms import LOOKS, Arm
from fastslow.study.curves import Cost, Curve
from fastslow.study.figures import drawing
from fastslow.study.intervals import Estimate, over_seeds
from fastslow.study.measures import Comparison
from fastslow.study.sentences import cost_title, divergence_title, headline, ranked, title

REWARD = "validation reward (0 to 1)"
AXES: dict[Cost, str] = {
    "steps": "optimizer steps",
    "rollouts": "training rollouts, both loops",
    "tokens": "prompt and completion tokens in training",
    "seconds": "minutes of training",
}


def report_figures(comparison: Comparison, subtitle: str) -> dict[str, Any]:
    """Every figure that the data allow, by name."""
    found = {"reward": reward_figure(comparison, subtitle)}
    if comparison.savings():
        found["cost"] = cost_figure(comparison, subtitle)
    if comparison.has_kl:
        found["divergence"] = divergence_figure(comparison, subtitle)
    if any(series for arm in comparison.arms for series in arm.entropies.values()):
        found["entropy"] = entropy_figure(comparison, subtitle)
    return found


def reward_figure(comparison: Comparison, subtitle: str) -> Any:
    from matplotlib.ticker import EngFormatter

    figure = drawing.new_figure((10, 7.6))
    panels = figure.subplots(2, 2, sharey=True).flatten()
    top = max(max(curve.highs) for arm in comparison.arms for curve in arm.curves.values())
    panels[0].set_ylim(-0.02 * top, min(1.02, 1.05 * top))
    for panel, (cost, label) in zip(panels, AXES.items(), strict=True):
        for arm in comparison.arms:
            if cost == "steps" and arm.method == "gepa":
                _level(panel, arm, comparison.end(arm))
            else:
                drawing.draw_arm(
                    panel, arm, cost, "rewards", per=60 if cost == "seconds" else 1, label=cost == "rollouts"
                )
        drawing.dress(panel, label, "")
        if cost == "tokens":
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))  # 10k, 20k: full numbers would overlap
        if not panel.lines:
            panel.annotate("not recorded in these runs", (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.4")
    for panel in panels[::2]:
        panel.set_ylabel(REWARD)
    return drawing.titled(figure, title(comparison), subtitle, legend=True)


def cost_figure(comparison: Comparison, subtitle: str) -> Any:
    arms = {arm.label: arm for arm in comparison.arms}
    rows = [
        (arms[label], cost, saved) for label, found in comparison.savings().items() for cost, saved in found.items()
    ]
    figure = drawing.new_figure((9, 1.9 + 0.36 * len(rows)))
    axes = figure.subplots()
    for place, (arm, _, saved) in enumerate(rows):
        drawing.draw_estimate(axes, place, saved, arm.look, f"{saved.mean:.1f}×", **drawing.colours(arm))
    axes.axvline(1, color="0.3", linewidth=1, linestyle="--")
    drawing.dress_estimates(axes, [f"{arm.label}: {cost}" for arm, cost, _ in rows])
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}×")
    # All means, and wide intervals clipped so that the means stay apart.
    means = [1.0, *(saved.mean for _, _, saved in rows)]
    ends = [*means, *(end for _, _, saved in rows if saved.has_interval for end in (saved.low, saved.high))]
    axes.set_xlim(max(min(ends), min(means) / 8) / 1.2, min(max(ends), max(means) * 8) * 1.2)
    axes.set_xlabel(f"times less than {comparison.baseline.label} needs (right of 1×: cheaper)")
    return drawing.titled(figure, cost_title(comparison), subtitle)


def divergence_figure(comparison: Comparison, subtitle: str) -> Any:
    figure = drawing.new_figure((10, 4.8))
    left, right = figure.subplots(1, 2)
    for arm in comparison.arms:
        if arm.method != "gepa":
            _path(left, arm)
            drawing.draw_arm(right, arm, "steps", "kls", label=False)
    drawing.dress(left, "KL from the base model, nats a token", REWARD)
    drawing.dress(right, AXES["steps"], "KL from the base model, nats a token")
    right.set_ylim(bottom=0)
    return drawing.titled(figure, divergence_title(comparison), subtitle, legend=True)


def _path(axes: Any, arm: Arm) -> None:
    """Reward against KL during training: the mean over seeds at each evaluation, and every seed's points."""
    curves = [curve for curve in arm.curves.values() if not all(math.isnan(kl) for kl in curve.kls)]
    if not curves:
        return
    marked = {"color": arm.look.colour, "marker": arm.look.marker}
    for curve in curves if len(curves) > 1 else []:
        axes.plot(curve.kls, curve.rewards, **marked, markersize=3, linestyle="", alpha=0.4)
    count = min(len(curve.kls) for curve in curves)
    means = [np.mean([getattr(curve, of)[:count] for curve in curves], axis=0) for of in ("kls", "rewards")]
    axes.plot(*means, **(marked | drawing.colours(arm)), markersize=6, linestyle=arm.line, label=arm.caption)


def entropy_figure(comparison: Comparison, subtitle: str) -> Any:
    figure = drawing.new_figure((9, 4.8))
    axes = figure.subplots()
    for arm in comparison.arms:
        lines = [tuple(np.array(series, dtype=float).T) for series in arm.entropies.values() if series]
        drawing.draw_seeds(axes, arm, lines, marks=12, label=arm.caption)
    drawing.dress(axes, AXES["steps"], "entropy of the policy, nats a token")
    axes.set_ylim(bottom=0)
    ends = {arm.label: comparison.entropy(arm).mean for arm in comparison.arms if arm.method != "gepa"}
    return drawing.titled(figure, f"Entropy at the end: {ranked(ends)}", subtitle, legend=True)


def _level(axes: Any, arm: Arm, end: Estimate) -> None:
    """A method without updates, as a horizontal line."""
    look = arm.look
    below = end.mean > 0.9 * axes.get_ylim()[1]
    axes.axhline(end.mean, color=look.colour, linestyle=(0, (1, 2)), linewidth=1.5)
    axes.annotate(
        f"{arm.label}: no updates", (0.99, end.mean), (0, -11 if below else 3), xycoords=("axes fraction", "data"),
        textcoords="offset points", fontsize=8, color=look.colour, ha="right", zorder=5,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
    )  # fmt: skip


def draw_curves(curves: Mapping[Method, Sequence[Curve]], target: Path, subtitle: str) -> None:
    """Write a PNG of validation reward against training rollouts: a line for every seed, and the mean of several seeds."""
    figure = drawing.new_figure((8, 5))
    axes = figure.subplots()
    for method, seeds in curves.items():
        drawing.draw_arm(axes, Arm(LOOKS[method].name, method, dict(enumerate(seeds))), "rollouts", "rewards")
    drawing.dress(axes, AXES["rollouts"], REWARD)
    axes.set(ylim=(-0.02, 1.02))
    axes.set_title(headline(curves), loc="left", fontsize=11, weight="bold", pad=24)
    axes.annotate(subtitle, (0, 1), (0, 8), "axes fraction", "offset points", fontsize=9.5, color="0.3")
    figure.legend(loc="outside lower left", frameon=False)
    with files.temporary(target) as unfinished:
        figure.savefig(unfinished, format="png", dpi=150)


def ends_figure(comparison: Comparison, finding: str, subtitle: str) -> Any:
    """Reward at the end, arm by arm: the mean with its interval, and every seed as a faint point."""
    arms = comparison.arms
    figure = drawing.new_figure((9, 1.8 + 0.4 * len(arms)))
    axes = figure.subplots()
    for place, arm in enumerate(arms):
        look, end = arm.look, comparison.end(arm)
        seeds = [curve.rewards[-1] for curve in arm.curves.values()]
        axes.plot(seeds, [place] * len(seeds), color=look.colour, marker="|", linestyle="", alpha=0.6, markersize=9)
        drawing.draw_estimate(axes, place, end, look, f"{end.mean:.2f}")
    drawing.dress_estimates(axes, [arm.label for arm in arms])
    axes.set(xlim=(0, 1), xlabel="validation reward at the end (0 to 1)")
    return drawing.titled(figure, finding, subtitle)


def steps_figure(arms: Sequence[Arm], finding: str, subtitle: str) -> Any:
    """Reward against steps, in one panel."""
    figure = drawing.new_figure((9, 5))
    axes = figure.subplots()
    for arm in arms:
        drawing.draw_arm(axes, arm, "steps", "rewards")
    drawing.dress(axes, AXES["steps"], REWARD)
    if not any(max(curve.rewards) for arm in arms for curve in arm.curves.values()):
        axes.set_ylim(-0.02, 1.02)  # lines at zero set no scale
    return drawing.titled(figure, finding, subtitle, legend=True)


def asymptote_figure(arms: Sequence[Arm], limits: Mapping[str, Asymptote | str], finding: str, subtitle: str) -> Any:
    """Every evaluation, the fitted curve, and to the right the asymptote with its interval where it is determined."""
    figure = drawing.new_figure((9, 5))
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
    drawing.dress(axes, AXES["rollouts"], REWARD)
    return drawing.titled(figure, finding, subtitle, legend=True)


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
    figure = drawing.new_figure((9, 1.2 + 2.1 * len(tasks)))
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
        drawing.dress(panel, "optimizer steps" if task == tasks[-1] else "", "reward")
        panel.set_ylim(-0.02, 1.02)
        panel.annotate(task, (0.99, 0.92), xycoords="axes fraction", ha="right", va="top", fontsize=9, weight="bold")
    figure.legend(loc="outside lower left", frameon=False, ncols=len(arms))
    return drawing.titled(figure, finding, subtitle)
