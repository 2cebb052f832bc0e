"""A comparison as tables, and as one HTML page with findings, tables, figures, the evolved contexts and their lineage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.recipe import dump_recipe
from fastslow.runs.board.page import shared_style
from fastslow.runs.board.text import detail
from fastslow.runs.folder import RunFolder
from fastslow.runs.lineage import Lineage
from fastslow.runs.reading import Place
from fastslow.study.arms import Arm
from fastslow.study.comparison import Comparison
from fastslow.study.figures.drawing import as_svg
from fastslow.study.intervals import Estimate
from fastslow.study.sentences import times

TEMPLATE = Path(__file__).with_name("report.html.j2")
READING = (
    "Numbers are means over seeds with 95% intervals over seeds in brackets (Student's t; ratios on a logarithmic scale, "
    "seed by seed where both arms have the same seeds). One seed has no interval. A run is evaluated under the context that "
    "was best on training problems; RL only and FST-distill are evaluated under the seed text. A peak counts as reached at "
    "the first evaluation that shows it."
)


@dataclass(frozen=True)
class Summary:
    """A table of the comparison, for the terminal and for the page: a row for each arm, in order."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def summaries(comparison: Comparison) -> list[Summary]:
    base = comparison.baseline
    arms = comparison.arms

    def rows(*columns: Any) -> list[list[str]]:
        return [[arm.label, *(column(arm) for column in columns)] for arm in arms]

    reached = Summary(
        "Reward",
        [
            "",
            "seeds",
            "reward at the end",
            f"less {base.label}",
            f"reward within {comparison.shared_rollouts:,.0f} rollouts",
        ],
        rows(
            lambda arm: str(len(arm.curves)),
            lambda arm: comparison.end(arm).words(),
            lambda arm: "" if arm is base else comparison.margin(arm).words(),
            lambda arm: comparison.within_shared_rollouts(arm).words(),
        ),
    )
    spent = Summary(
        "Training cost",
        ["", "steps", "rollouts", "tokens", "minutes"],
        rows(
            lambda arm: "no updates" if arm.method == "gepa" else f"{comparison.last(arm, 'steps').mean:,.0f}",
            lambda arm: f"{comparison.last(arm, 'rollouts').mean:,.0f}",
            lambda arm: _whole(comparison.last(arm, "tokens").mean),
            lambda arm: f"{comparison.last(arm, 'seconds').mean / 60:,.1f}",
        ),
    )
    peak = sum(comparison.peaks.values()) / len(comparison.peaks)
    cost = Summary(
        f"Cost to reach the peak of {base.label} ({peak:.2f})"
        if comparison.baseline_rises
        else f"Cost to exceed {base.label} ({peak:.2f} at best), which does not improve beyond noise",
        ["", "steps", f"than {base.label}", "rollouts", f"than {base.label}"],
        rows(
            lambda arm: comparison.cost(arm, "steps").words(0),
            lambda arm: "" if arm is base else _times(comparison.saving(arm, "steps")),
            lambda arm: comparison.cost(arm, "rollouts").words(0),
            lambda arm: "" if arm is base else _times(comparison.saving(arm, "rollouts")),
        ),
    )
    moved = Summary(
        "KL from the base model (nats a token)",
        [
            "",
            "at the end",
            "both under the seed text",
            f"at the peak of {base.label}",
            "entropy",
        ],
        rows(
            lambda arm: comparison.last(arm, "kls").words(4),
            lambda arm: comparison.last(arm, "seed_kls").words(4),
            lambda arm: comparison.kl_at_peak(arm).words(4),
            lambda arm: comparison.entropy(arm).words(),
        ),
    )
    equally_far = Summary(
        f"Best reward within the KL that both the arm and {base.label} reached",
        ["", "KL", "reward", f"of {base.label}", f"less {base.label}"],
        rows(
            lambda arm: Estimate(comparison.shared_kl(arm)).words(3),
            lambda arm: comparison.reward_at_kl(arm, comparison.shared_kl(arm)).words(),
            lambda arm: "" if arm is base else comparison.reward_at_kl(base, comparison.shared_kl(arm)).words(),
            lambda arm: "" if arm is base else comparison.margin_at_kl(arm).words(),
        ),
    )
    alone, measured = not comparison.others, comparison.has_kl
    return [
        reached,
        spent,
        *([] if alone else [cost]),
        *([moved] if measured else []),
        *([equally_far] if measured and not alone else []),
    ]


def _times(saved: Estimate) -> str:
    return saved.words() if math.isnan(saved.mean) else times(saved)


def _whole(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.0f}"


def render(
    comparison: Comparison,
    said: Sequence[str],
    remarks: Sequence[str],
    figures: Mapping[str, Any],
    title: str,
    subtitle: str,
) -> str:
    """Render the HTML page."""
    from jinja2 import Environment

    colours = [arm.look.colour for arm in comparison.arms]
    tables = [
        {
            "title": table.title,
            "head": table.head,
            "rows": [{"colour": colour, "cells": row} for colour, row in zip(colours, table.rows, strict=True)],
        }
        for table in summaries(comparison)
    ]
    return (
        Environment(autoescape=True, trim_blocks=True)
        .from_string(TEMPLATE.read_text())
        .render(
            style=shared_style(),
            title=title,
            subtitle=subtitle,
            findings=said,
            remarks=remarks,
            tables=tables,
            reading=READING,
            figures={name: as_svg(figure) for name, figure in figures.items()},
            runs=[run for arm in comparison.arms for run in _runs(arm)],
            recipes=[_recipe(arm) for arm in comparison.arms if arm.folders],
        )
    )


def _runs(arm: Arm) -> list[dict[str, Any]]:
    """The final best context and the lineage of each run that evolves contexts."""
    found = []
    for seed, folder in arm.folders.items():
        run = RunFolder.open(folder)
        cycles = run.cycles()
        if cycles:
            last = cycles[-1]
            texts = next(member["texts"] for member in last["population"] if member["id"] == last["best"])
            found.append(
                {
                    "label": arm.label,
                    "colour": arm.look.colour,
                    "seed": seed,
                    "where": f"{folder}, context {last['best']}",
                    "texts": texts,
                    "lineage": _lineage(run),
                }
            )
    return found


def _lineage(run: RunFolder) -> list[dict[str, Any]]:
    """Every context that survived or led to one that did, as the board shows it."""
    path = run.path.resolve()
    lineage = Lineage(Place(path.name, path, path))
    lineage.refresh()
    return [found for node in lineage.survivors() if (found := detail(lineage, node.id)) is not None]


def _recipe(arm: Arm) -> dict[str, str]:
    folder = next(iter(arm.folders.values()))
    return {"label": arm.label, "text": dump_recipe(RunFolder.open(folder).recipe)}
