"""Scores on several tasks as a radar chart: a spoke for each task, a ring for each starting point."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastslow.recipe.model import Method
from fastslow.study.arms import BASE, LOOKS
from fastslow.study.figures.drawing import new_figure
from fastslow.study.intervals import Estimate


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
            "low": self.score.low,
            "high": self.score.high,
            "seeds": self.score.seeds,
            "problems": self.problems,
        }


def radar_title(spokes: Sequence[Spoke], measure: str = "mean") -> str:
    """On how many tasks the best starting point is highest, ties included, and on how many its interval is apart."""
    after = [spoke for spoke in spokes if spoke.when == "after" and spoke.measure == measure]
    ends = {(spoke.task, spoke.source): spoke.score for spoke in after}
    wins, clear = Counter[str](), Counter[str]()
    for (task, source), mine in ends.items():
        others = [score for (other, _), score in ends.items() if other == task and score is not mine]
        wins[source] += all(mine.mean >= score.mean for score in others)
        clear[source] += mine.has_interval and all(score.has_interval and mine.low > score.high for score in others)
    most = max(wins.values())
    best = [source for source, count in wins.items() if count == most]
    on = f"highest on {most} of {len({task for task, _ in ends})} tasks"
    if len(best) > 1:
        return f"After GEPA, {' and '.join(best)} are each {on}"
    return f"After GEPA, {best[0]} is {on}, beyond the intervals on {clear[best[0]]}"


def over(spokes: Sequence[Spoke]) -> str:
    """What the intervals are over."""
    seeds = max(spoke.score.seeds for spoke in spokes)
    return f"{seeds} seeds" if seeds > 1 else f"{spokes[0].problems} problems, one seed"


def radar(spokes: Sequence[Spoke], k: int) -> Any:
    """Two charts, mean@k and best@k: dashed before GEPA, solid after."""
    figure = new_figure((11, 6.4))
    panels = figure.subplots(1, 2, subplot_kw={"projection": "polar"})
    tasks = list(dict.fromkeys(spoke.task for spoke in spokes))
    for panel, measure in zip(panels, ("mean", "best"), strict=True):
        _draw(panel, [spoke for spoke in spokes if spoke.measure == measure], tasks, labelled=measure == "mean")
        panel.set_title(f"{measure}@{k} (reward, 0 to 1)", fontsize=10, pad=28)
        panel.set_ylim(0, min(1.0, max(0.1, 1.15 * max(spoke.score.mean for spoke in spokes))))
    figure.suptitle(f"{radar_title(spokes)}\n", x=0.01, ha="left", fontsize=11.5, weight="bold")
    figure.text(
        0.012, 0.93, f"whiskers (shifted for legibility): 95% intervals over {over(spokes)}", fontsize=9, color="0.3"
    )
    figure.legend(loc="outside lower center", ncols=len({spoke.source for spoke in spokes}), frameon=False)
    return figure


def _draw(panel: Any, spokes: Sequence[Spoke], tasks: Sequence[str], labelled: bool) -> None:
    angles = [2 * math.pi * index / len(tasks) for index in range(len(tasks))]
    sources = list(dict.fromkeys((spoke.source, spoke.method) for spoke in spokes))
    for place, (source, method) in enumerate(sources):
        look = LOOKS[method] if method else BASE
        shift = 0.035 * (place - (len(sources) - 1) / 2)
        for when, style in (("before", "--"), ("after", "-")):
            found = {spoke.task: spoke.score for spoke in spokes if spoke.source == source and spoke.when == when}
            ring = [found[task].mean for task in (*tasks, tasks[0])]
            after = when == "after"
            label = f"{source} → GEPA" if after else f"{source}, before"
            panel.plot(
                [*angles, angles[0]], ring, color=look.colour, linestyle=style, marker=look.marker if after else None,
                markersize=6, linewidth=2 if after else 1.2, label=label if labelled else None,
            )  # fmt: skip
            for angle, task in zip(angles, tasks, strict=True):
                if after and found[task].has_interval:
                    ends = [found[task].low, found[task].high]
                    panel.plot([angle + shift] * 2, ends, color=look.colour, linewidth=1.2, alpha=0.6)
    panel.set_theta_offset(math.pi / 2)
    panel.set_theta_direction(-1)
    panel.set_xticks(angles, _short(tasks), fontsize=9)
    for label, angle in zip(panel.get_xticklabels(), angles, strict=True):
        side = math.sin(angle)  # names right of the middle start at the rim, those on the left end there
        label.set_horizontalalignment("center" if abs(side) < 0.1 else "left" if side > 0 else "right")
    panel.set_rlabel_position(180 / len(tasks))
    panel.tick_params(axis="y", labelsize=8, labelcolor="0.4")


def _short(tasks: Sequence[str]) -> list[str]:
    """Names without the words that all of them share."""
    words = [task.replace("/", " ").split() for task in tasks]
    shared = set(words[0]).intersection(*words)
    own = [" ".join(word for word in each if word not in shared) for each in words]
    return [textwrap.fill(short or task, 20) for short, task in zip(own, tasks, strict=True)]
