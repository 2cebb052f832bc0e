"""A comparison of runs as a Python object: what `fastslow compare` prints and draws, for a notebook or a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fastslow.base.errors import FastSlowError
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.study.arms import gather
from fastslow.study.compare import compare_runs, concluded, show
from fastslow.study.comparison import COLUMNS, Comparison
from fastslow.study.figures.comparison import comparison_figures
from fastslow.study.report import summaries
from fastslow.study.sentences import title

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 120
"""Columns of the printed tables."""


@dataclass(frozen=True, repr=False)
class ComparedRuns:
    """Runs compared with each other. Printed, it shows the tables and findings of `fastslow compare`."""

    folders: Sequence[Path]
    comparison: Comparison
    title: str
    findings: Sequence[str]
    """Sentences about the arms, then remarks about the runs."""
    subtitle: str
    baseline: str | None
    rollouts: int | None

    @property
    def table(self) -> pd.DataFrame:
        """Every number with its interval: one row per arm and measure."""
        import pandas as pd

        table = pd.DataFrame(self.comparison.table())
        return table.assign(**{name: pd.to_numeric(table[name]) for name in ("mean", "low", "high")})

    @property
    def points(self) -> pd.DataFrame:
        """One row per evaluation of every run."""
        import pandas as pd

        points = pd.DataFrame(self.comparison.points())
        return points.assign(**{name: pd.to_numeric(points[name]) for name in COLUMNS.values()})

    @property
    def figures(self) -> dict[str, Any]:
        """The matplotlib figures by name: reward, and cost, divergence and entropy where the runs have the data."""
        return comparison_figures(self.comparison, self.subtitle)

    def plot(self, figure: str = "reward") -> Any:
        """One of the figures, as a matplotlib Figure that a notebook shows."""
        found = self.figures
        if figure not in found:
            raise FastSlowError(f"there is no figure '{figure}' of these runs; there are {', '.join(found)}")
        return found[figure]

    def save(self, folder: str | Path) -> Path:
        """Write the tables, the figures and report.html to a folder, as `fastslow compare --out` does."""
        compare_runs(self.folders, folder, Console(quiet=True), self.baseline, self.rollouts)
        return Path(folder)

    def __repr__(self) -> str:
        console = Console(width=WIDTH, force_jupyter=False, color_system=None)
        with console.capture() as printed:
            show(self.comparison, console)
        return "\n".join([self.title, "", printed.get().rstrip(), *(f"· {line}" for line in self.findings)])

    def _repr_html_(self) -> str:
        parts = [f"<h4>{escape(self.title)}</h4>", f"<p>{escape(self.subtitle)}</p>"]
        for summary in summaries(self.comparison):
            rows = [list(summary.head), *(list(row) for row in summary.rows)]
            cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
            body = "".join(f"<tr>{each}</tr>" for each in cells)
            parts.append(f"<p><b>{escape(summary.title)}</b></p><table>{body}</table>")
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
    comparison, said, subtitle = concluded(arms, baseline)
    return ComparedRuns(tuple(folders), comparison, title(comparison), [*said, *remarks], subtitle, baseline, rollouts)
