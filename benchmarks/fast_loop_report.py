"""The table and the picture of what benchmarks/fast_loop.py has simulated."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from fastslow.study.curves import Estimate, over_seeds

Curves = dict[str, dict[str, dict[int, tuple[Estimate, float]]]]
"""By setting, optimizer and mark: the share of the oracle's gain over seeds, and how often the text is worse than the seed
text."""


def read(folder: Path) -> Curves:
    curves: Curves = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        found: dict[str, Any] = json.loads(path.read_text())
        by_mark: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in found["rows"]:
            by_mark[row["mark"]].append(row)
        curves[found["setting"]][found["optimizer"]] = {
            mark: (
                over_seeds([row["share"] for row in rows]),
                sum(row["worse"] for row in rows) / len(rows),
            )
            for mark, rows in by_mark.items()
        }
    return curves


def report(folder: Path, figure: Path | None) -> None:
    curves = read(folder)
    for setting, optimizers in curves.items():
        marks = sorted({mark for rows in optimizers.values() for mark in rows})
        print(f"\n{setting}: share of the oracle's gain [95% over seeds] (how often worse than the seed text)\n")
        print(f"| rollouts | {' | '.join(f'{mark:,}' for mark in marks)} |")
        print(f"|---|{'---|' * len(marks)}")
        for name, rows in sorted(optimizers.items(), key=lambda item: -item[1][max(item[1])][0].mean):
            cells = [f"{rows[mark][0].words(2)} ({rows[mark][1]:.1%})" if mark in rows else "" for mark in marks]
            print(f"| {name} | {' | '.join(cells)} |")
    if figure is not None:
        draw(curves, figure)


def draw(curves: Curves, target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(4, len(curves))
    rows = -(-len(curves) // columns)
    page, axes = pyplot.subplots(rows, columns, figsize=(3.4 * columns, 2.8 * rows), sharey=True, squeeze=False)
    names = sorted({name for optimizers in curves.values() for name in optimizers})
    colours = {name: f"C{index}" for index, name in enumerate(names)}
    for axis, (setting, optimizers) in zip(axes.flat, curves.items(), strict=False):
        for name, points in optimizers.items():
            marks = sorted(points)
            axis.plot([0, *marks], [0, *(points[mark][0].mean for mark in marks)], color=colours[name], label=name)
            low, high = ([getattr(points[mark][0], side) for mark in marks] for side in ("low", "high"))
            axis.fill_between(marks, low, high, color=colours[name], alpha=0.2, linewidth=0)
        axis.set_title(setting)
        axis.axhline(1, color="grey", linewidth=0.8, linestyle=":")
        axis.set_ylim(-0.2, 1.05)
        axis.set_xlabel("rollouts")
    for axis in list(axes.flat)[len(curves) :]:
        axis.set_visible(False)
    axes[0, 0].set_ylabel("share of the oracle's gain")
    handles = [pyplot.Line2D([], [], color=colours[name], label=name) for name in names]
    page.legend(handles=handles, loc="lower center", ncols=min(6, len(names)), frameon=False)
    page.tight_layout(rect=(0, 0.06, 1, 1))
    page.savefig(target, dpi=130)
