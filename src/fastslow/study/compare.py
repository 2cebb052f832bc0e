"""`fastslow compare`: tables in the terminal; CSV files, figures and one HTML report in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastslow.base.errors import FastSlowError, RunError
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.tables import write_csv
from fastslow.study.arms import Arm, gather
from fastslow.study.comparison import Comparison
from fastslow.study.conclusions import continual, kept
from fastslow.study.figures.comparison import comparison_figures
from fastslow.study.figures.drawing import save
from fastslow.study.report import render, summaries
from fastslow.study.sentences import findings, title


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
    if RunFolder.open(runs[0]).recipe.stages:
        if baseline is not None or rollouts is not None:
            raise FastSlowError(
                "runs with stages are compared at the end of each stage, and neither --baseline nor --rollouts applies; "
                "remove them"
            )
        return _compare_stages(arms, remarks, out, console)
    with console.status("fitting and drawing"):
        comparison, said, subtitle = concluded(arms, baseline)
        figures = comparison_figures(comparison, subtitle)
        write_csv(out / "table.csv", comparison.table())
        write_csv(out / "points.csv", comparison.points())
        for name, figure in figures.items():
            save(figure, out, name)
        headline = title(comparison)
        page = render(comparison, said, remarks, figures, headline, subtitle)
        files.write_bytes(out / "report.html", files.encode(page))
    show(comparison, console)
    for line in (*said, *remarks):
        console.print(Text(f"· {line}"))
    console.print(Text(f"The report is in {out / 'report.html'}, with figures (PNG, SVG) and tables (CSV) beside it."))
    return {
        "title": headline,
        "baseline": comparison.baseline.label,
        "findings": said,
        "remarks": remarks,
        "measures": [
            {"arm": arm.label, "method": arm.method, "measure": measure, **asdict(number)}
            for arm, measure, number in comparison.measures()
        ],
        "report": out / "report.html",
    }


def concluded(arms: Sequence[Arm], baseline: str | None = None) -> tuple[Comparison, list[str], str]:
    """The comparison of arms, the findings in sentences, and what was compared."""
    comparison = Comparison.of(arms, baseline)
    limits = {arm.label: comparison.asymptote(arm) for arm in arms}
    return comparison, findings(comparison, limits), described(arms)


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
            if not folder.exists():
                raise
            others.append(folder)
            problem = problem or error
    if not runs:
        if len(others) == 1 and problem is not None:
            raise problem
        raise RunError(f"none of these is a run folder: {_listed(others)}; give folders made by `fastslow train`")
    return runs, [f"skipped, no run: {_listed(others)}"] if others else []


def _listed(paths: Sequence[Path]) -> str:
    more = f" and {len(paths) - 4} more" if len(paths) > 4 else ""
    return ", ".join(f"'{path}'" for path in paths[:4]) + more


def _compare_stages(arms: Sequence[Arm], remarks: Sequence[str], out: Path, console: Console) -> dict[str, Any]:
    """Compare rewards on each task only: a peak or a KL of one stage's task says nothing about another's."""
    found = continual(arms, f"{_models(arms)}; {_seeds(arms)}; grey: the stage that trains on the task")
    spent = Comparison.of(arms)
    rollouts = [(arm.label, "training rollouts", spent.last(arm, "rollouts"), 0) for arm in arms]
    found = replace(found, numbers=[*found.numbers, *kept(arms), *rollouts])
    write_csv(out / "table.csv", found.rows())
    save(found.figure, out, "stages")
    console.print(found.table())
    for line in remarks:
        console.print(Text(f"· {line}"))
    console.print(Text(f"The figure is in {out / 'stages.png'} (and .svg), the numbers are in {out / 'table.csv'}."))
    return {"title": found.finding, "remarks": list(remarks), "measures": found.rows(), "figure": out / "stages.png"}


def show(comparison: Comparison, console: Console) -> None:
    """Print the tables of a comparison."""
    for summary in summaries(comparison):
        table = Table(title=summary.title, title_justify="left")
        for index, name in enumerate(summary.head):
            table.add_column(
                name, justify="right" if index else "left", overflow="fold"
            )  # arms differ at the end of names
        for row in summary.rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)


def described(arms: Sequence[Arm]) -> str:
    """What was compared, in one line."""
    recipe = RunFolder.open(next(iter(arms[0].folders.values()))).recipe
    tasks = " and ".join(" ".join([task.name, *_options(task.options)]) for task in recipe.tasks)
    shown = {
        count: {
            1: f"bands of one seed: 95% intervals over {recipe.evaluation.problems} problems",
            2: "faint: each seed, bold: their mean; bars: 95% intervals over seeds",
        }.get(count, "bands and bars: 95% intervals over seeds")
        for count in _counts(arms)
    }
    return "; ".join([tasks, _models(arms), _seeds(arms), *dict.fromkeys(shown.values())])


def _models(arms: Sequence[Arm]) -> str:
    recipes = [RunFolder.open(folder).recipe for arm in arms for folder in arm.folders.values()]
    names = dict.fromkeys(Path(recipe.model.name).name for recipe in recipes)
    return f"model{'s' * (len(names) > 1)} {', '.join(names)}"


def _seeds(arms: Sequence[Arm]) -> str:
    counts = _counts(arms)
    return "1 seed" if counts == [1] else f"{' to '.join(str(count) for count in {counts[0]: 0, counts[-1]: 0})} seeds"


def _counts(arms: Sequence[Arm]) -> list[int]:
    return sorted({len(arm.curves) for arm in arms})


def _options(options: dict[str, Any]) -> list[str]:
    return [str(value) if isinstance(value, str) else f"{name}={value}" for name, value in options.items()]
