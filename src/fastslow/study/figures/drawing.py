"""What all figures share: size, axes, titles, one arm as a line, and saving."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.runs import files
from fastslow.study.arms import Arm, Look
from fastslow.study.intervals import Estimate, over_seeds

SEEDS_FOR_BAND = 3
"""The interval of two seeds is too wide to draw."""


def new_figure(size: tuple[float, float]) -> Any:
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg draws the PNG

    class Shown(Figure):
        """A figure that a notebook shows; without pyplot it would only print its size."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=100)
            return buffer.getvalue()

    return Shown(figsize=size, layout="constrained")


def dress(axes: Any, xlabel: str, ylabel: str) -> None:
    """Style the axes of a panel."""
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def titled(figure: Any, finding: str, subtitle: str, legend: bool = False) -> Any:
    """Set the finding in bold over the whole width, what was compared below it, and a legend under the figure."""
    width, height = figure.get_size_inches()
    bold, plain = textwrap.wrap(finding, int(10 * width)), textwrap.wrap(subtitle, int(12.5 * width))
    figure.suptitle("\n".join([*bold, *[""] * len(plain)]), x=0.01, ha="left", fontsize=11.5, weight="bold")
    top, text = 1 - (0.09 + 0.21 * len(bold)) / height, "\n".join(plain)
    figure.text(0.012, top, text, va="top", fontsize=9, color="0.3", linespacing=1.3)
    if legend:
        figure.legend(loc="outside lower left", frameon=False)
    return figure


def colours(arm: Arm) -> dict[str, str]:
    """The colour of an arm; of several arms with one method, every other one has hollow markers."""
    colour = arm.look.colour
    return {"color": colour, "markerfacecolor": "white" if arm.variant % 2 else colour}


def draw_arm(axes: Any, arm: Arm, x: str, y: str, *, per: float = 1.0, label: bool = True) -> None:
    """Draw a field of the curves of one arm over another. One seed of the reward has the interval over problems."""
    lines = [
        (np.array(getattr(curve, x), dtype=float) / per, np.array(getattr(curve, y), dtype=float))
        for curve in arm.curves.values()
    ]
    lines = [(xs[known], ys[known]) for xs, ys in lines for known in [np.isfinite(xs) & np.isfinite(ys)] if known.any()]
    draw_seeds(axes, arm, lines, arm.line, clip_on=False, label=arm.caption if label else None)
    if len(lines) == 1 and y == "rewards":
        (curve,) = arm.curves.values()
        spent = np.array(getattr(curve, x), dtype=float) / per
        axes.fill_between(spent, curve.lows, curve.highs, color=arm.look.colour, alpha=0.15, linewidth=0)


def draw_seeds(
    axes: Any, arm: Arm, lines: Sequence[tuple[Any, Any]], faint: str = "-", marks: int | None = None, **style: Any
) -> None:
    """Draw one seed as a line; several as faint lines and their mean, from three seeds on with the 95% interval over seeds.
    `marks` is about how many points of the line have a marker."""
    if not lines:
        return
    look = arm.look
    for xs, ys in lines if len(lines) > 1 else []:
        axes.plot(xs, ys, color=look.colour, linestyle=faint, linewidth=0.8, alpha=0.45)
    grid, estimates = mean_line(lines)
    shown = lines[0] if len(lines) == 1 else (grid, [found.mean for found in estimates])
    every = max(1, len(grid) // marks) if marks else None
    style = colours(arm) | {"linestyle": arm.line, "marker": look.marker, "markersize": 5, "markevery": every} | style
    axes.plot(*shown, **style)
    if len(lines) >= SEEDS_FOR_BAND:
        low, high = [found.low for found in estimates], [found.high for found in estimates]
        axes.fill_between(grid, low, high, color=look.colour, alpha=0.15, linewidth=0)


def mean_line(lines: Sequence[tuple[Any, Any]]) -> tuple[Any, list[Any]]:
    """The mean of several lines with its interval, where all of them are defined; lines are interpolated linearly."""
    start, end = max(xs[0] for xs, _ in lines), min(xs[-1] for xs, _ in lines)
    longest = max((xs for xs, _ in lines), key=len)
    grid = np.unique(np.concatenate([[start], longest[(longest > start) & (longest < end)], [end]]))
    values = np.stack([np.interp(grid, xs, ys) for xs, ys in lines])
    return grid, [over_seeds(list(values[:, index])) for index in range(len(grid))]


def draw_estimate(axes: Any, place: int, found: Estimate, look: Look, text: str, **style: str) -> None:
    """Draw a mean as a marker with a text above it, and its interval as a horizontal bar."""
    if found.has_interval:
        axes.plot([found.low, found.high], [place, place], color=look.colour, linewidth=2, alpha=0.6)
    axes.plot([found.mean], [place], **{"color": look.colour, "marker": look.marker, "markersize": 8, **style})
    axes.annotate(text, (found.mean, place), (0, 7), textcoords="offset points", ha="center", fontsize=8.5)


def dress_estimates(axes: Any, names: Sequence[str]) -> None:
    """Style the axes of estimates below each other."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.7)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Any, folder: Path, name: str) -> None:
    """Write a figure as PNG and as SVG, with the same layout: to find one takes as long as to draw."""
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    with files.temporary(folder / f"{name}.png") as unfinished:
        figure.savefig(unfinished, format="png", dpi=150)
    files.write_bytes(folder / f"{name}.svg", files.encode(_svg(figure)))


def as_svg(figure: Any) -> str:
    """A figure as an element of an HTML page."""
    text = _svg(figure)
    return text[text.index("<svg") :]


@lru_cache(maxsize=16)  # a page and a file show the same figure, and drawing one takes a second
def _svg(figure: Any) -> str:
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": "fastslow"}):  # without a salt ids are random, and no two files are the same
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
