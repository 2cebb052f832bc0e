"""Curves as a picture, and what a method is called and looks like in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastslow.recipe.model import Method
from fastslow.runs import files
from fastslow.study.curves import Curve


@dataclass(frozen=True)
class Look:
    """How a method is shown: its name, what it does in a few words, a colour and a marker."""

    name: str
    does: str
    colour: str
    marker: str


# Colours of Okabe and Ito, which people with any kind of colour vision can tell apart.
LOOKS: dict[Method, Look] = {
    "fst": Look("FST", "evolves the prompt and trains the weights", "#D55E00", "o"),
    "rl": Look("RL only", "trains the weights", "#0072B2", "s"),
    "gepa": Look("GEPA only", "evolves the prompt", "#009E73", "^"),
    "distill": Look("FST-distill", "trains what the prompt does into the weights", "#CC79A7", "D"),
}


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
    """Validation reward against training rollouts as a PNG: a line for every seed, with its interval where there is one."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg draws the PNG

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for method, seeds in curves.items():
        look = LOOKS[method]
        for index, curve in enumerate(seeds):
            axes.plot(
                curve.rollouts,
                curve.rewards,
                color=look.colour,
                marker=look.marker,
                markersize=5,
                clip_on=False,
                alpha=1.0 if len(seeds) == 1 else 0.6,
                label=f"{look.name}: {look.does}" if index == 0 else None,
            )
            if len(seeds) == 1:
                axes.fill_between(curve.rollouts, curve.lows, curve.highs, color=look.colour, alpha=0.15, linewidth=0)
    axes.set(
        xlabel="training rollouts spent (number of answers graded to learn from)",
        ylabel="validation reward (0 to 1)",
        ylim=(-0.02, 1.02),
    )
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(headline(curves), loc="left", fontsize=11, weight="bold", pad=24)
    axes.annotate(subtitle, (0, 1), (0, 8), "axes fraction", "offset points", fontsize=9.5, color="0.3")
    figure.legend(loc="outside lower left", frameon=False)
    with files.aside(target) as unfinished:
        figure.savefig(unfinished, format="png", dpi=150)
