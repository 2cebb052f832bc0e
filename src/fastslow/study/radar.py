"""Scores on several tasks as a radar: a spoke for each task, a ring for each starting point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastslow.recipe.model import Method
from fastslow.study.figure import new_figure
from fastslow.study.intervals import Estimate
from fastslow.study.looks import LOOKS

BASE_LOOK = ("#000000", "X")
"""Of the base model: Okabe and Ito's black."""


@dataclass(frozen=True)
class Spoke:
    """One score: on a task, from some weights, before or after GEPA."""

    task: str
    source: str
    method: Method | None
    when: str
    measure: str
    score: Estimate
    problems: int

    def row(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "source": self.source,
            "when": self.when,
            "measure": self.measure,
            "score": self.score.mean,
            "low": self.score.low if self.score.has_interval else "",
            "high": self.score.high if self.score.has_interval else "",
            "seeds": self.score.seeds,
            "problems": self.problems,
        }


def radar_title(spokes: Sequence[Spoke], measure: str = "mean") -> str:
    """On how many tasks each starting point ends highest, ties counted for all."""
    ends = {(spoke.task, spoke.source): spoke.score.mean for spoke in spokes if _is(spoke, "after", measure)}
    tasks = list(dict.fromkeys(task for task, _ in ends))
    wins = {
        source: sum(
            ends[task, source] == max(end for (other, _), end in ends.items() if other == task) for task in tasks
        )
        for source in dict.fromkeys(source for _, source in ends)
    }
    most = max(wins.values())
    best = " and ".join(source for source, count in wins.items() if count == most)
    return f"After GEPA, {best} {'is' if best in wins else 'are each'} best on {most} of {len(tasks)} tasks"


def radar(spokes: Sequence[Spoke], k: int) -> Any:
    """Two radars, mean@k and best@k: dashed before GEPA, solid after."""
    tasks = list(dict.fromkeys(spoke.task for spoke in spokes))
    sources = dict.fromkeys((spoke.source, spoke.method) for spoke in spokes)
    angles = [2 * math.pi * index / len(tasks) for index in range(len(tasks))]
    figure = new_figure((11, 6.4))
    panels = figure.subplots(1, 2, subplot_kw={"projection": "polar"})
    top = max(spoke.score.mean for spoke in spokes)
    for panel, measure in zip(panels, ("mean", "best"), strict=True):
        for source, method in sources:
            colour, marker = (LOOKS[method].colour, LOOKS[method].marker) if method else BASE_LOOK
            for when, style in (("before", "--"), ("after", "-")):
                found = {
                    spoke.task: spoke.score for spoke in spokes if spoke.source == source and _is(spoke, when, measure)
                }
                values = [found[task].mean for task in tasks]
                ring, around = [*values, values[0]], [*angles, angles[0]]
                label = f"{source} → GEPA" if when == "after" else f"{source}, before"
                panel.plot(
                    around, ring, color=colour, linestyle=style, marker=marker if when == "after" else None, markersize=6,
                    linewidth=2 if when == "after" else 1.2, label=label if measure == "mean" else None,
                )  # fmt: skip
                if when == "after":
                    for angle, score in zip(angles, found.values(), strict=True):
                        if score.has_interval:
                            panel.plot([angle, angle], [score.low, score.high], color=colour, linewidth=1, alpha=0.5)
        panel.set_theta_offset(math.pi / 2)
        panel.set_theta_direction(-1)
        panel.set_xticks(angles, tasks, fontsize=9)
        panel.tick_params(axis="x", pad=12)
        panel.set_ylim(0, min(1.0, max(0.1, 1.1 * top)))
        panel.set_rlabel_position(180 / len(tasks))
        panel.tick_params(axis="y", labelsize=8, labelcolor="0.4")
        panel.set_title(f"{measure}@{k} (reward, 0 to 1)", fontsize=10, pad=18)
    seeds = max(spoke.score.seeds for spoke in spokes)
    over = f"{seeds} seeds" if seeds > 1 else f"{spokes[0].problems} problems, one seed"
    figure.suptitle(f"{radar_title(spokes)}\n", x=0.01, ha="left", fontsize=11.5, weight="bold")
    figure.text(0.012, 0.93, f"whiskers: 95% intervals over {over}", fontsize=9, color="0.3")
    figure.legend(loc="outside lower center", ncols=len(sources), frameon=False)
    return figure


def _is(spoke: Spoke, when: str, measure: str) -> bool:
    return spoke.when == when and spoke.measure == measure
