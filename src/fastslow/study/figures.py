"""The figures of arms, in a report, in studies and in the quickstart, and what all figures share. Each title states the
finding."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.evaluation.asymptote import Asymptote
from fastslow.recipe.model import Method
from fastslow.runs import files
from fastslow.study.arms import LOOKS, Arm, Look
from fastslow.study.curves import Cost, Curve, Estimate, over_seeds
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
        panel.set_ylabel(REWARD)
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
    axes.set_xlabel(f"cost of {comparison.baseline.label} divided by the method's (right of 1×: cheaper)")
    return titled(figure, cost_title(comparison), subtitle)


def divergence_figure(comparison: Comparison, subtitle: str) -> Any:
    figure = new_figure((10, 4.8))
    left, right = figure.subplots(1, 2)
    for arm in comparison.arms:
        if arm.method != "gepa":
            _path(left, arm)
            draw_arm(right, arm, "steps", "kls", label=False)
    dress(left, "KL from the base model, nats a token", REWARD)
    dress(right, AXES["steps"], "KL from the base model, nats a token")
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
    dress(axes, AXES["steps"], "entropy of the policy, nats a token")
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


def draw_curves(curves: Mapping[Method, Sequence[Curve]], target: Path, subtitle: str) -> None:
    """Write a PNG of validation reward against training rollouts: a line for every seed, and the mean of several seeds."""
    arms = [Arm(LOOKS[method].name, method, dict(enumerate(seeds))) for method, seeds in curves.items()]
    figure = lines_figure(arms, "rollouts", headline(curves), subtitle)
    figure.axes[0].set_ylim(-0.02, 1.02)
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


def lines_figure(arms: Sequence[Arm], cost: Cost, finding: str, subtitle: str) -> Any:
    """Reward against one of the costs, in one panel."""
    figure = new_figure((9, 5))
    axes = figure.subplots()
    for arm in arms:
        draw_arm(axes, arm, cost, "rewards")
    dress(axes, AXES[cost], REWARD)
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
    dress(axes, AXES["rollouts"], REWARD)
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


SEEDS_FOR_BAND = 3
"""The interval of two seeds is too wide to draw."""


def new_figure(size: tuple[float, float]) -> Any:
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg draws the PNG
    from matplotlib.text import Text

    class Shown(Figure):
        """A figure that a notebook shows; without pyplot it would only print its size."""

        def draw(self, renderer: Any) -> None:
            for text in self.findobj(Text):
                text.set_parse_math(False)  # arms are named by what the user wrote: a dollar is one
            super().draw(renderer)

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
