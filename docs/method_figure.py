"""Draw docs/method.svg: the two loops of a run over time.

python docs/method_figure.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

FAST, SLOW, INK = "#e07a1f", "#2a6f97", "#333333"
STEPS = 3
WIDTH = 10.0


def box(axes: Axes, x: float, y: float, width: float, height: float, text: str, color: str, *, filled: bool) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.12",
            facecolor=color if filled else "white",
            edgecolor=color,
            linewidth=1.5,
        )
    )
    axes.text(
        x + width / 2, y + height / 2, text, ha="center", va="center", color="white" if filled else INK, fontsize=9
    )


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str = INK) -> None:
    axes.annotate(
        "", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "lw": 1.3, "shrinkA": 0, "shrinkB": 0}
    )


def cycle(axes: Axes, x: float, number: int) -> None:
    axes.text(x, 4.62, f"cycle {number}", color=INK, fontsize=10, fontweight="bold")
    box(axes, x, 3.2, 1.5, 1.15, "fast loop\nplay, reflect,\nedit, score", FAST, filled=True)
    box(
        axes,
        x + 1.85,
        3.2,
        2.75,
        1.15,
        f"K texts Φ{'₁₂'[number - 1]}:\neach is read by G/K\nof a problem's G rollouts",
        FAST,
        filled=False,
    )
    arrow(axes, (x + 1.5, 3.77), (x + 1.85, 3.77), FAST)
    for step in range(STEPS):
        left = x + 1.85 + step * 0.95
        box(axes, left, 0.95, 0.85, 1.35, "G rollouts\nof each\nproblem", SLOW, filled=False)
        arrow(axes, (left + 0.42, 3.2), (left + 0.42, 2.3), FAST)
        box(axes, left, 0.2, 0.85, 0.5, "update", SLOW, filled=True)
        arrow(axes, (left + 0.42, 0.95), (left + 0.42, 0.7), SLOW)
    arrow(axes, (x + 1.5 + 0.35, 1.9), (x + 0.75, 3.2), INK)
    if number == 1:
        axes.text(x - 0.15, 2.3, "look ahead at\nthe problems of\nthese T steps", fontsize=8.5, color=INK, va="center")


def main() -> None:
    figure, axes = plt.subplots(figsize=(WIDTH, 4.6))
    cycle(axes, 0.2, 1)
    cycle(axes, 5.3, 2)
    arrow(axes, (4.8, 3.77), (5.3, 3.77), FAST)
    arrow(axes, (4.7, 0.45), (7.15, 0.45), SLOW)
    arrow(axes, (5.1, 0.45), (5.6, 3.2), SLOW)
    axes.text(6.1, 0.56, "weights θ", ha="center", fontsize=9, color=SLOW)
    axes.text(5.05, 3.9, "Φ₁", ha="center", fontsize=9, color=FAST)
    axes.set(xlim=(0, WIDTH), ylim=(0, 4.9))
    axes.axis("off")
    figure.savefig(Path(__file__).with_name("method.svg"), bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    plt.rcParams["svg.hashsalt"] = "fastslow"
    plt.rcParams["svg.fonttype"] = "none"
    main()
