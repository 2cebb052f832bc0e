"""The figures of a comparison. Each title states the finding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastslow.study.arms import LINES, Arm
from fastslow.study.comparison import Comparison
from fastslow.study.curves import Cost
from fastslow.study.figures.drawing import colours, draw_arm, dress, mean_line, new_figure, titled
from fastslow.study.intervals import Estimate
from fastslow.study.sentences import cost_title, savings, title

AXES: dict[Cost, str] = {
    "steps": "optimizer steps",
    "rollouts": "training rollouts, both loops",
    "tokens": "prompt and completion tokens in training",
    "seconds": "minutes of training",
}


def comparison_figures(comparison: Comparison, subtitle: str) -> dict[str, Any]:
    """Every figure that the data allow, by name."""
    found = {"reward": reward_figure(comparison, subtitle)}
    if savings(comparison):
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
    titled(figure, title(comparison), subtitle)
    figure.legend(loc="outside lower left", frameon=False)
    return figure


def cost_figure(comparison: Comparison, subtitle: str) -> Any:
    found = savings(comparison)
    arms = {arm.label: arm for arm in comparison.arms}
    rows = [(label, cost, saved) for label, costs in found.items() for cost, saved in costs.items()]
    figure = new_figure((9, 1.9 + 0.36 * len(rows)))
    axes = figure.subplots()
    for place, (label, _, saved) in enumerate(rows):
        look = arms[label].look
        if saved.has_interval:
            axes.plot([saved.low, saved.high], [place, place], color=look.colour, linewidth=2, alpha=0.6)
        axes.plot([saved.mean], [place], marker=look.marker, markersize=8, **colours(arms[label]))
        axes.annotate(
            f"{saved.mean:.1f}×", (saved.mean, place), (0, 7), textcoords="offset points", ha="center", fontsize=8.5
        )
    axes.axvline(1, color="0.3", linewidth=1, linestyle="--")
    axes.set_yticks(range(len(rows)), [f"{label}: {cost}" for label, cost, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.7)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}×")
    _within(axes, [saved for _, _, saved in rows])
    axes.set_xlabel(f"times less than {comparison.baseline.label} needs (right of 1×: cheaper)")
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    titled(figure, cost_title(comparison), subtitle)
    return figure


def _within(axes: Any, found: list[Estimate]) -> None:
    """Show all means, and clip wide intervals so that the means stay apart."""
    means = [saved.mean for saved in found] + [1.0]
    low = min([*means, *(saved.low for saved in found if saved.has_interval)])
    high = max([*means, *(saved.high for saved in found if saved.has_interval)])
    axes.set_xlim(max(low, min(means) / 8) / 1.2, min(high, max(means) * 8) * 1.2)


def divergence_figure(comparison: Comparison, subtitle: str) -> Any:
    figure = new_figure((10, 4.8))
    left, right = figure.subplots(1, 2)
    for arm in comparison.arms:
        if arm.method == "gepa":
            continue
        _path(left, arm)
        draw_arm(right, arm, "steps", "kls", label=False)
    dress(left, "KL from the base model, nats a token", "validation reward (0 to 1)")
    dress(right, "optimizer steps", "KL from the base model, nats a token")
    right.set_ylim(bottom=0)
    titled(figure, divergence_title(comparison), subtitle)
    figure.legend(loc="outside lower left", frameon=False)
    return figure


def divergence_title(comparison: Comparison) -> str:
    base = comparison.baseline
    trained = [arm for arm in comparison.arms if arm.method != "gepa"]
    matched = {arm.label: comparison.kl_at_peak(arm).mean for arm in trained} if comparison.baseline_rises else {}
    matched = {label: kl for label, kl in matched.items() if not math.isnan(kl)}
    if len(matched) > 1:
        peak = sum(comparison.peaks.values()) / len(comparison.peaks)
        return f"KL from the base model at the peak of {base.label} ({peak:.2f}): {_ranked(matched)}"
    return f"KL from the base model at the end: {_ranked({arm.label: comparison.last(arm, 'kls').mean for arm in trained})}"


def _ranked(values: Mapping[str, float]) -> str:
    known = sorted(
        ((label, value) for label, value in values.items() if not math.isnan(value)), key=lambda each: each[1]
    )
    return ", ".join(f"{label} {value:#.2g}" for label, value in known)


def _path(axes: Any, arm: Arm) -> None:
    """Reward against KL during training: the mean over seeds at each evaluation, and every seed's points."""
    look, line = arm.look, LINES[arm.variant % len(LINES)]
    curves = [curve for curve in arm.curves.values() if not all(math.isnan(kl) for kl in curve.kls)]
    if not curves:
        return
    for curve in curves if len(curves) > 1 else []:
        axes.plot(
            curve.kls, curve.rewards, color=look.colour, marker=look.marker, markersize=3, linestyle="", alpha=0.4
        )
    count = min(len(curve.kls) for curve in curves)
    means = [
        [float(np.mean([getattr(curve, of)[index] for curve in curves])) for index in range(count)]
        for of in ("kls", "rewards")
    ]
    label = arm.caption
    axes.plot(*means, **colours(arm), marker=look.marker, markersize=6, linestyle=line, label=label)


def entropy_figure(comparison: Comparison, subtitle: str) -> Any:
    figure = new_figure((9, 4.8))
    axes = figure.subplots()
    for arm in comparison.arms:
        lines = [tuple(np.array(series, dtype=float).T) for series in arm.entropies.values() if series]
        if not lines:
            continue
        look, line = arm.look, LINES[arm.variant % len(LINES)]
        for xs, ys in lines if len(lines) > 1 else []:
            axes.plot(xs, ys, color=look.colour, linewidth=0.8, alpha=0.45)
        grid, estimates = mean_line(lines)
        mean = [found.mean for found in estimates]
        every = max(1, len(grid) // 12)
        style = colours(arm) | {"linestyle": line, "marker": look.marker, "markersize": 5, "markevery": every}
        axes.plot(grid, mean, **style, label=arm.caption)
        if len(lines) > 2:
            low, high = [found.low for found in estimates], [found.high for found in estimates]
            axes.fill_between(grid, low, high, color=look.colour, alpha=0.15, linewidth=0)
    dress(axes, "optimizer steps", "entropy of the policy, nats a token")
    axes.set_ylim(bottom=0)
    ends = {arm.label: comparison.entropy(arm).mean for arm in comparison.arms if arm.method != "gepa"}
    ranked = sorted(((label, end) for label, end in ends.items() if not math.isnan(end)), key=lambda end: -end[1])
    titled(figure, "Entropy at the end: " + ", ".join(f"{label} {end:.2f}" for label, end in ranked), subtitle)
    figure.legend(loc="outside lower left", frameon=False)
    return figure


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
