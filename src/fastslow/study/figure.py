"""Curves as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.recipe.model import Method
from fastslow.runs import files
from fastslow.study.arms import Arm
from fastslow.study.curves import Curve
from fastslow.study.intervals import over_seeds
from fastslow.study.looks import LINES, LOOKS

SEEDS_FOR_BAND = 3
"""The interval of two seeds is wider than any picture."""


def headline(curves: Mapping[Method, Sequence[Curve]]) -> str:
    """Where the methods ended, best first, in one sentence; of several seeds the mean."""
    ends = {
        LOOKS[method].name: sum(curve.rewards[-1] for curve in seeds) / len(seeds) for method, seeds in curves.items()
    }
    spent = sorted({curve.rollouts[-1] for seeds in curves.values() for curve in seeds})
    rollouts = f"{spent[0]:,}" if len(spent) == 1 else f"{spent[0]:,} to {spent[-1]:,}"
    ranked = sorted(ends.items(), key=lambda end: -end[1])
    rewards = ", ".join(f"{name} {reward:.2f}" for name, reward in ranked)
    return f"Reward after {rollouts} rollouts: {rewards}"


def draw(curves: Mapping[Method, Sequence[Curve]], target: Path, subtitle: str) -> None:
    """Validation reward against training rollouts as a PNG: a line for every seed, and their mean where there are several."""
    figure = new_figure((8, 5))
    axes = figure.subplots()
    for method, seeds in curves.items():
        draw_arm(axes, Arm(LOOKS[method].name, method, dict(enumerate(seeds))), "rollouts", "rewards")
    dress(axes, "training rollouts spent (number of answers graded to learn from)", "validation reward (0 to 1)")
    axes.set(ylim=(-0.02, 1.02))
    title(axes, headline(curves), subtitle)
    figure.legend(loc="outside lower left", frameon=False)
    with files.aside(target) as unfinished:
        figure.savefig(unfinished, format="png", dpi=150)


def new_figure(size: tuple[float, float]) -> Any:
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg draws the PNG

    return Figure(figsize=size, layout="constrained")


def dress(axes: Any, xlabel: str, ylabel: str) -> None:
    """What all panels have in common."""
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def title(axes: Any, finding: str, subtitle: str) -> None:
    axes.set_title(finding, loc="left", fontsize=11, weight="bold", pad=24)
    axes.annotate(subtitle, (0, 1), (0, 8), "axes fraction", "offset points", fontsize=9.5, color="0.3")


def titled(figure: Any, finding: str, subtitle: str) -> Any:
    """The finding in bold over the whole width, and below it what was compared, in room of its own."""
    width, height = figure.get_size_inches()
    bold, plain = textwrap.wrap(finding, int(10 * width)), textwrap.wrap(subtitle, int(12.5 * width))
    figure.suptitle("\n".join([*bold, *[""] * len(plain)]), x=0.01, ha="left", fontsize=11.5, weight="bold")
    figure.text(
        0.012,
        1 - (0.09 + 0.21 * len(bold)) / height,
        "\n".join(plain),
        va="top",
        fontsize=9,
        color="0.3",
        linespacing=1.3,
    )
    return figure


def colours(arm: Arm) -> dict[str, str]:
    """A method's colour; of several arms with one method, every other one has hollow markers."""
    colour = arm.look.colour
    return {"color": colour, "markerfacecolor": "white" if arm.variant % 2 else colour}


def draw_arm(axes: Any, arm: Arm, x: str, y: str, *, per: float = 1.0, label: bool = True) -> None:
    """One arm in one panel: with one seed its line, and its interval over problems where `y` is the reward; with more their
    mean over a faint line each, and with three or more the 95% interval over seeds."""
    look = arm.look
    lines = [
        (np.array(getattr(curve, x), dtype=float) / per, np.array(getattr(curve, y), dtype=float))
        for curve in arm.curves.values()
    ]
    lines = [(xs[known], ys[known]) for xs, ys in lines for known in [np.isfinite(xs) & np.isfinite(ys)] if known.any()]
    if not lines:
        return
    style = colours(arm) | {"linestyle": LINES[arm.variant % len(LINES)], "clip_on": False}
    named = {"label": arm.caption} if label else {}
    if len(lines) == 1:
        axes.plot(*lines[0], **style, marker=look.marker, markersize=5, **named)
        if y == "rewards":
            (curve,) = arm.curves.values()
            spent = np.array(getattr(curve, x), dtype=float) / per
            axes.fill_between(spent, curve.lows, curve.highs, color=look.colour, alpha=0.15, linewidth=0)
        return
    for xs, ys in lines:
        axes.plot(xs, ys, color=look.colour, linestyle=style["linestyle"], linewidth=0.8, alpha=0.45)
    grid, estimates = mean_line(lines)
    axes.plot(grid, [found.mean for found in estimates], **style, marker=look.marker, markersize=5, **named)
    if len(lines) >= SEEDS_FOR_BAND:
        low, high = [found.low for found in estimates], [found.high for found in estimates]
        axes.fill_between(grid, low, high, color=look.colour, alpha=0.15, linewidth=0)


def mean_line(lines: Sequence[tuple[Any, Any]]) -> tuple[Any, list[Any]]:
    """The mean of several lines with its interval, as far as all of them go; between its own points a line is straight."""
    start, end = max(xs[0] for xs, _ in lines), min(xs[-1] for xs, _ in lines)
    longest = max((xs for xs, _ in lines), key=len)
    grid = np.unique(np.concatenate([[start], longest[(longest > start) & (longest < end)], [end]]))
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in lines])
    return grid, [over_seeds(list(values[:, index])) for index in range(len(grid))]
