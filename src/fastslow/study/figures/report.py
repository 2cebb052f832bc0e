"""The figures of a report. Each title states the finding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastslow.study.arms import Arm
from fastslow.study.curves import Cost
from fastslow.study.figures.drawing import (
    colours,
    draw_arm,
    draw_estimate,
    draw_seeds,
    dress,
    dress_estimates,
    new_figure,
    titled,
)  # fmt: skip
from fastslow.study.intervals import Estimate
from fastslow.study.measures import Comparison
from fastslow.study.sentences import cost_title, divergence_title, ranked, title

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

    figure = new_figure((10, 7.6))
    panels = figure.subplots(2, 2, sharey=True).flatten()
    top = max(max(curve.highs) for arm in comparison.arms for curve in arm.curves.values())
    panels[0].set_ylim(-0.02 * top, min(1.02, 1.05 * top))
    for panel, (cost, label) in zip(panels, AXES.items(), strict=True):
        for arm in comparison.arms:
            if cost == "steps" and arm.method == "gepa":
                _level(panel, arm, comparison.end(arm))
            else:
                draw_arm(panel, arm, cost, "rewards", per=60 if cost == "seconds" else 1, label=cost == "rollouts")
        dress(panel, label, "")
        if cost == "tokens":
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))  # 10k, 20k: full numbers would overlap
        if not panel.lines:
            panel.annotate("not recorded in these runs", (0.5, 0.5), xycoords="axes fraction", ha="center", color="0.4")
    for panel in panels[::2]:
        panel.set_ylabel("validation reward (0 to 1)")
    return titled(figure, title(comparison), subtitle, legend=True)


def cost_figure(comparison: Comparison, subtitle: str) -> Any:
    arms = {arm.label: arm for arm in comparison.arms}
    rows = [
        (arms[label], cost, saved) for label, found in comparison.savings().items() for cost, saved in found.items()
    ]
    figure = new_figure((9, 1.9 + 0.36 * len(rows)))
    axes = figure.subplots()
    for place, (arm, _, saved) in enumerate(rows):
        draw_estimate(axes, place, saved, arm.look, f"{saved.mean:.1f}×", **colours(arm))
    axes.axvline(1, color="0.3", linewidth=1, linestyle="--")
    dress_estimates(axes, [f"{arm.label}: {cost}" for arm, cost, _ in rows])
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}×")
    # All means, and wide intervals clipped so that the means stay apart.
    means = [1.0, *(saved.mean for _, _, saved in rows)]
    ends = [*means, *(end for _, _, saved in rows if saved.has_interval for end in (saved.low, saved.high))]
    axes.set_xlim(max(min(ends), min(means) / 8) / 1.2, min(max(ends), max(means) * 8) * 1.2)
    axes.set_xlabel(f"times less than {comparison.baseline.label} needs (right of 1×: cheaper)")
    return titled(figure, cost_title(comparison), subtitle)


def divergence_figure(comparison: Comparison, subtitle: str) -> Any:
    figure = new_figure((10, 4.8))
    left, right = figure.subplots(1, 2)
    for arm in comparison.arms:
        if arm.method != "gepa":
            _path(left, arm)
            draw_arm(right, arm, "steps", "kls", label=False)
    dress(left, "KL from the base model, nats a token", "validation reward (0 to 1)")
    dress(right, "optimizer steps", "KL from the base model, nats a token")
    right.set_ylim(bottom=0)
    return titled(figure, divergence_title(comparison), subtitle, legend=True)


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
    axes.plot(*means, **(marked | colours(arm)), markersize=6, linestyle=arm.line, label=arm.caption)


def entropy_figure(comparison: Comparison, subtitle: str) -> Any:
    figure = new_figure((9, 4.8))
    axes = figure.subplots()
    for arm in comparison.arms:
        lines = [tuple(np.array(series, dtype=float).T) for series in arm.entropies.values() if series]
        draw_seeds(axes, arm, lines, marks=12, label=arm.caption)
    dress(axes, "optimizer steps", "entropy of the policy, nats a token")
    axes.set_ylim(bottom=0)
    ends = {arm.label: comparison.entropy(arm).mean for arm in comparison.arms if arm.method != "gepa"}
    return titled(figure, f"Entropy at the end: {ranked(ends)}", subtitle, legend=True)


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
