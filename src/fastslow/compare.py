"""Runs side by side: a table in the terminal, and in a folder CSV, pictures and one page with everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastslow.recipe import Recipe
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.tables import write_csv
from fastslow.study.arms import Arm, gather
from fastslow.study.charts import charts, reward_title, save
from fastslow.study.comparison import Comparison, findings
from fastslow.study.report import render, summaries


def compare_runs(
    folders: Sequence[str | Path],
    out: str | Path,
    console: Console,
    baseline: str | None = None,
    rollouts: int | None = None,
) -> Comparison:
    """Compare runs, or what they were within so many rollouts; show the tables, and write table.csv, points.csv, the pictures
    and report.html into a folder."""
    out = Path(out)
    arms, remarks = gather(folders, rollouts)
    comparison = Comparison.of(arms, baseline)
    with console.status("fitting and drawing"):
        limits = {arm.label: comparison.asymptote(arm) for arm in arms}
        said = findings(comparison, limits)
        subtitle = described(RunFolder.open(next(iter(arms[0].folders.values()))).recipe, arms)
        figures = charts(comparison, subtitle)
        write_csv(out / "table.csv", comparison.table())
        write_csv(out / "points.csv", comparison.points())
        for name, figure in figures.items():
            save(figure, out, name)
        page = render(comparison, said, remarks, figures, reward_title(comparison), subtitle)
        files.write_bytes(out / "report.html", files.encode(page))
    show(comparison, console)
    for line in (*said, *remarks):
        console.print(Text(f"· {line}"))
    console.print(
        Text(f"{out / 'report.html'} has it all on one page; beside it pictures (PNG, SVG) and tables (CSV).")
    )
    return comparison


def show(comparison: Comparison, console: Console) -> None:
    """The tables of a comparison, in the terminal."""
    for summary in summaries(comparison):
        table = Table(title=summary.title, title_justify="left")
        for index, name in enumerate(summary.head):
            table.add_column(name, justify="right" if index else "left")
        for row in summary.rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)


def described(recipe: Recipe, arms: Sequence[Arm]) -> str:
    """What was compared, in a line."""
    tasks = " and ".join(" ".join([task.name, *_options(task.options)]) for task in recipe.tasks)
    counts = sorted({len(arm.curves) for arm in arms})
    shown = {
        count: {
            1: f"bands of one seed: 95% intervals over {recipe.evaluation.problems} problems",
            2: "faint: each seed, bold: their mean; bars: 95% intervals over seeds",
        }.get(count, "bands and bars: 95% intervals over seeds")
        for count in counts
    }
    seeds = "1 seed" if counts == [1] else f"{' to '.join(str(count) for count in {counts[0]: 0, counts[-1]: 0})} seeds"
    return "; ".join([tasks, f"model {Path(recipe.model.name).name}", seeds, *dict.fromkeys(shown.values())])


def _options(options: dict[str, Any]) -> list[str]:
    return [str(value) if isinstance(value, str) else f"{name}={value}" for name, value in options.items()]
