"""Runs compared: as `fastslow compare` prints and writes them, as a Python object for a notebook or a script, and as one HTML
page with findings, tables, figures, the evolved contexts with their lineage, and the recipes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from fastslow.base.errors import FastSlowError, RunError
from fastslow.base.terminal import Terminal
from fastslow.base.text import without_controls
from fastslow.recipe import dump_recipe
from fastslow.runs import files
from fastslow.runs.board.page import shared_style
from fastslow.runs.board.text import detail
from fastslow.runs.folder import RunFolder
from fastslow.runs.frames import write_csv
from fastslow.runs.lineage import Lineage
from fastslow.runs.reading import Place
from fastslow.study.arms import Arm, gather
from fastslow.study.conclusions import continual, kept
from fastslow.study.figures import as_svg, report_figures, save
from fastslow.study.measures import Comparison
from fastslow.study.sentences import findings, shown, summaries, title, write_known

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 120
"""Columns of the printed tables."""


@dataclass(frozen=True, repr=False)
class ComparedRuns:
    """Runs compared with each other. Printed, it shows the tables and findings of `fastslow compare`."""

    comparison: Comparison
    title: str
    subtitle: str
    said: Sequence[str]
    """Sentences about the arms."""
    remarks: Sequence[str]
    """About the runs."""

    @property
    def findings(self) -> list[str]:
        """Sentences about the arms, then remarks about the runs."""
        return [*self.said, *self.remarks]

    @property
    def table(self) -> pd.DataFrame:
        """Every number with its interval: one row per arm and measure."""
        import pandas as pd

        return pd.DataFrame(self.comparison.rows())

    @property
    def points(self) -> pd.DataFrame:
        """One row per evaluation of every run."""
        import pandas as pd

        return pd.DataFrame(self.comparison.points())

    @property
    def figures(self) -> dict[str, Any]:
        """The matplotlib figures by name: reward, and cost, divergence and entropy where the runs have the data."""
        return report_figures(self.comparison, self.subtitle)

    def plot(self, figure: str = "reward") -> Any:
        """One of the figures, as a matplotlib Figure that a notebook shows."""
        found = self.figures
        if figure not in found:
            raise FastSlowError(f"there is no figure '{figure}' of these runs; there are {', '.join(found)}")
        return found[figure]

    def save(self, folder: str | Path) -> Path:
        """Write the tables, the figures and report.html to a folder, as `fastslow compare --out` does."""
        out, figures = Path(folder), self.figures
        write_known(out / "table.csv", self.comparison.rows())
        write_known(out / "points.csv", self.comparison.points())
        for name, figure in figures.items():
            save(figure, out, name)
        said = {"title": self.title, "subtitle": self.subtitle, "findings": self.said, "remarks": self.remarks}
        files.write_bytes(out / "report.html", files.encode(without_controls(render(self.comparison, figures, **said))))
        return out

    def __repr__(self) -> str:
        console = Terminal(width=WIDTH, force_jupyter=False, color_system=None)
        with console.capture() as printed:
            show(self.comparison, console)
        return "\n".join([self.title, "", printed.get().rstrip(), *(f"· {line}" for line in self.findings)])

    def _repr_html_(self) -> str:
        parts = [f"<h4>{escape(self.title)}</h4>", f"<p>{escape(self.subtitle)}</p>"]
        for table in summaries(self.comparison):
            cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in (table.head, *table.rows)]
            body = "".join(f"<tr>{each}</tr>" for each in cells)
            parts.append(f"<p><b>{escape(table.title)}</b></p><table>{body}</table>")
        said = "".join(f"<li>{escape(line)}</li>" for line in self.findings)
        return "".join([*parts, f"<ul>{said}</ul>"])


def compare(folders: Sequence[Path], baseline: str | None = None, rollouts: int | None = None) -> ComparedRuns:
    """Compare runs, truncated at `rollouts` where given. The baseline is an arm or method, by default RL only."""
    staged = [folder for folder in folders if RunFolder.open(folder).recipe.stages]
    if staged:
        raise FastSlowError(
            f"'{staged[0]}' has stages; runs with stages are compared stage by stage with `fastslow compare`"
        )
    with files.understood(folders[0].parent):
        arms, remarks = gather(folders, rollouts)
    return _concluded(arms, remarks, baseline)


def compare_runs(
    folders: Sequence[str | Path],
    out: str | Path,
    console: Console,
    baseline: str | None = None,
    rollouts: int | None = None,
) -> dict[str, Any]:
    """Compare runs, truncated at `rollouts` where given: show the tables, and write table.csv, points.csv, the figures and
    report.html to a folder. Runs with stages are compared stage by stage. Returns what was found. Folders and files that are
    there and no run are skipped."""
    out = Path(out)
    runs, skipped = _runs_among(folders)
    with files.understood(runs[0].parent):
        arms, remarks = gather(runs, rollouts)
    remarks = [*skipped, *remarks]
    if arms[0].runs[0].recipe.stages:
        if baseline is not None or rollouts is not None:
            raise FastSlowError(
                "runs with stages are compared at the end of each stage, and neither --baseline nor --rollouts applies; "
                "remove them"
            )
        return _compare_stages(arms, remarks, out, console)
    with console.status("fitting and drawing"):
        found = _concluded(arms, remarks, baseline)
        found.save(out)
    show(found.comparison, console)
    where = f"The report is in {out / 'report.html'}, with figures (PNG, SVG) and tables (CSV) beside it."
    for line in (*(f"· {line}" for line in found.findings), where):
        console.print(Text(line))
    return {
        "title": found.title,
        "baseline": found.comparison.baseline.label,
        "findings": found.said,
        "remarks": remarks,
        "measures": found.comparison.rows(),
        "report": out / "report.html",
    }


def show(comparison: Comparison, console: Console) -> None:
    for summary in summaries(comparison):
        # Folded: arms differ at the end of names.
        console.print(shown(summary.title, summary.head, summary.rows, fold=True))


def described(arms: Sequence[Arm]) -> str:
    """What was compared, in one line."""
    recipe = arms[0].runs[0].recipe
    named = [
        [task.name, *(value if isinstance(value, str) else f"{name}={value}" for name, value in task.options.items())]
        for task in recipe.tasks
    ]
    meanings = {
        1: f"bands of one seed: 95% intervals over {recipe.evaluation.problems} problems",
        2: "faint: each seed, bold: their mean; bars: 95% intervals over seeds",
    }
    counts = sorted({len(arm.curves) for arm in arms})
    shown = [meanings.get(count, "bands and bars: 95% intervals over seeds") for count in counts]
    return "; ".join([" and ".join(map(" ".join, named)), _origin(arms), *dict.fromkeys(shown)])


def _origin(arms: Sequence[Arm]) -> str:
    """The models that the runs start from, and how many seeds the arms have."""
    names = dict.fromkeys(Path(run.recipe.model.name).name for arm in arms for run in arm.runs)
    counts = sorted({len(arm.curves) for arm in arms})
    seeds = "1 seed" if counts == [1] else f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds"
    return f"model{'s' * (len(names) > 1)} {', '.join(names)}; {seeds}"


def _concluded(arms: Sequence[Arm], remarks: Sequence[str], baseline: str | None) -> ComparedRuns:
    comparison = Comparison.of(arms, baseline)
    limits = {arm.label: comparison.asymptote(arm) for arm in arms}
    return ComparedRuns(comparison, title(comparison), described(arms), findings(comparison, limits), remarks)


def _runs_among(folders: Sequence[str | Path]) -> tuple[list[Path], list[str]]:
    """The run folders, and a remark about what is none, such as a figure beside the runs; raises if something is not there at
    all, which no pattern of the shell has found, or if none is a run."""
    runs, others = list[Path](), list[Path]()
    problem: RunError | None = None
    for folder in map(Path, folders):
        try:
            RunFolder.open(folder)
            runs.append(folder)
        except RunError as error:
            if not os.path.exists(folder):  # a name may be too long to ask Path
                raise
            others.append(folder)
            problem = problem or error
    more = f" and {len(others) - 4} more" if len(others) > 4 else ""
    listed = ", ".join(f"'{path}'" for path in others[:4]) + more
    if not runs:
        if len(others) == 1 and problem is not None:
            raise problem
        raise RunError(f"none of these is a run folder: {listed}; give folders made by `fastslow train`")
    return runs, [f"skipped, no run: {listed}"] if others else []


def _compare_stages(arms: Sequence[Arm], remarks: Sequence[str], out: Path, console: Console) -> dict[str, Any]:
    """Compare rewards on each task only: a level or a KL of one stage's task says nothing about another's."""
    found = continual(arms, f"{_origin(arms)}; grey: the stage that trains on the task")
    spent = [(arm.label, "training rollouts", arm.mean(lambda curve: curve.rollouts[-1]), 0) for arm in arms]
    found = replace(found, numbers=[*found.numbers, *kept(arms), *spent])
    write_csv(out / "table.csv", found.rows())
    save(found.figure, out, "stages")
    console.print(found.table())
    where = f"The figure is in {out / 'stages.png'} (and .svg), the numbers are in {out / 'table.csv'}."
    for line in (*(f"· {line}" for line in remarks), where):
        console.print(Text(line))
    return {"title": found.finding, "remarks": list(remarks), "measures": found.rows(), "figure": out / "stages.png"}


TEMPLATE = Path(__file__).with_name("page.html.j2")
READING = (
    "Numbers are means over seeds with 95% intervals over seeds in brackets (Student's t; ratios on a logarithmic scale, "
    "seed by seed where both arms have the same seeds). One seed has no interval. A run is evaluated under the context that "
    "was best on training problems; RL only and FST-distill are evaluated under the seed text. A level of "
    "reward counts as reached where a curve that does not fall, fitted to the evaluations of a run, passes it."
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
