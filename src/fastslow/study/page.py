"""A comparison as one HTML page: findings, tables, figures, the evolved contexts with their lineage, and the recipes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastslow.recipe import dump_recipe
from fastslow.runs.board.page import shared_style
from fastslow.runs.board.text import detail
from fastslow.runs.folder import RunFolder
from fastslow.runs.lineage import Lineage
from fastslow.runs.reading import Place
from fastslow.study.arms import Arm
from fastslow.study.figures.drawing import as_svg
from fastslow.study.measures import Comparison
from fastslow.study.tables import summaries

TEMPLATE = Path(__file__).with_name("page.html.j2")
READING = (
    "Numbers are means over seeds with 95% intervals over seeds in brackets (Student's t; ratios on a logarithmic scale, "
    "seed by seed where both arms have the same seeds). One seed has no interval. A run is evaluated under the context that "
    "was best on training problems; RL only and FST-distill are evaluated under the seed text. A peak counts as reached at "
    "the first evaluation that shows it."
)


def render(comparison: Comparison, figures: Mapping[str, Any], **said: str | Sequence[str]) -> str:
    """Render the page, with the title, subtitle, findings and remarks that are said."""
    from jinja2 import Environment

    arms = comparison.arms
    return (
        Environment(autoescape=True, trim_blocks=True)
        .from_string(TEMPLATE.read_text())
        .render(
            **said,
            style=shared_style(),
            tables=summaries(comparison),
            colours=[arm.look.colour for arm in arms],
            reading=READING,
            figures={name: as_svg(figure) for name, figure in figures.items()},
            runs=[shown for arm in arms for run in arm.runs for shown in _contexts(arm, run)],
            recipes=[{"label": arm.label, "text": dump_recipe(arm.runs[0].recipe)} for arm in arms if arm.folders],
        )
    )


def _contexts(arm: Arm, run: RunFolder) -> list[dict[str, Any]]:
    """The final best context of a run that evolves contexts, and the lineage of the survivors, as the board shows it."""
    if not (cycles := run.cycles()):
        return []
    last, path = cycles[-1], run.path.resolve()
    lineage = Lineage(Place(path.name, path, path))
    lineage.refresh()
    return [
        {
            "label": arm.label,
            "colour": arm.look.colour,
            "seed": run.recipe.seed,
            "where": f"{run.path}, context {last['best']}",
            "texts": next(member["texts"] for member in last["population"] if member["id"] == last["best"]),
            "lineage": [found for node in lineage.survivors() if (found := detail(lineage, node.id)) is not None],
        }
    ]
