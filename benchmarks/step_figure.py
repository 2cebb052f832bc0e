"""The seconds of a step as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Colours of Okabe and Ito, which people with any kind of colour vision can tell apart.
LOOKS = {
    "sampling": ("answers are written", "#0072B2"),
    "sync": ("weights go to the sampler", "#F0E442"),
    "grading": ("answers are graded", "#CC79A7"),
    "reference": ("the base model is asked", "#E69F00"),
    "update": ("weights are updated", "#D55E00"),
}


def draw(report: dict[str, Any], target: Path) -> None:
    """For every context length a bar for each system, cut into phases."""
    from matplotlib.figure import Figure  # without pyplot: no window, no state, and Agg draws the PNG

    rows = report["rows"]
    lengths = list(dict.fromkeys(row["context"] for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    figure = Figure(figsize=(9, 1.6 + 0.32 * len(rows) + 0.25 * len(lengths)), layout="constrained")
    axes = figure.subplots()
    places, labels, place = [], [], 0.0
    longest = max(row["seconds"] for row in rows if row["seconds"])
    for length in lengths:
        for system in systems:
            row = next((row for row in rows if (row["context"], row["system"]) == (length, system)), None)
            if row is None:
                continue
            places.append(place)
            labels.append(f"{row['name']}, context of {length:,}")
            left = 0.0
            for phase, (_, colour) in LOOKS.items() if row["seconds"] else ():
                axes.barh(place, row["phases"][phase], left=left, color=colour, height=0.8)
                left += row["phases"][phase]
            text = f" {row['seconds']:.1f} s" if row["seconds"] else " does not fit into memory"
            axes.text(left + 0.005 * longest, place, text, va="center", fontsize=9)
            place += 1
        place += 0.6
    axes.set_yticks(places, labels)
    axes.set_ylim(place - 0.9, -0.7)  # from above; a row that did not fit has no bar to make room for itself
    axes.set_xlim(right=1.12 * longest)
    axes.set_xlabel("seconds of one training step")
    axes.spines[["top", "right"]].set_visible(False)
    load = report["workload"]
    axes.set_title(_headline(rows), loc="left", fontsize=11, weight="bold", pad=36)
    axes.annotate(
        f"{load['problems'] * load['group']} rollouts of {load['tokens']} tokens under {load['contexts']} contexts\n"
        f"{report['model']}, {report['device']['name']}",
        (0, 1), (0, 8), "axes fraction", "offset points", fontsize=9.5, color="0.3",
    )  # fmt: skip
    for words, colour in LOOKS.values():
        axes.barh(0, 0, color=colour, label=words)
    figure.legend(loc="outside lower left", ncols=3, frameon=False)
    figure.savefig(target, format="png", dpi=150)


def _headline(rows: list[dict[str, Any]]) -> str:
    """The longest context that both have a number for."""
    for length in sorted({row["context"] for row in rows}, reverse=True):
        seconds = {row["system"]: row["seconds"] for row in rows if row["context"] == length}
        if seconds.get("trl") and seconds.get("fastslow"):
            return f"A step under contexts of {length:,} tokens: {seconds['trl'] / seconds['fastslow']:.1f}× faster"
    return "A training step by phase"
