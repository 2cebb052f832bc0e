"""The command line. It parses and prints; what a command does is elsewhere."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fastslow.errors import FastSlowError, FastSlowWarning

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Fast-Slow Training: evolve the text a model reads while RL updates its weights.",
)
console = Console()

RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe file.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="slow.learning_rate=2e-6 seed=1 …")
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
AtStep = Annotated[
    int | None, typer.Option("--checkpoint", help="The step of a checkpoint; the newest when not given.")
]


@app.command()
def train(
    recipe: Annotated[Path | None, typer.Argument(metavar="RECIPE", help="A recipe file.")] = None,
    overrides: Overrides = None,
    resume: Annotated[Path | None, typer.Option("--resume", metavar="RUN", help="Go on with this run.")] = None,
) -> None:
    """Run a recipe, or go on with an interrupted run (with KEY=VALUE for what only fits it to the machine)."""
    changed = [str(recipe)] if resume and recipe and "=" in str(recipe) else []
    if (recipe is None or bool(changed)) == (resume is None):
        raise FastSlowError("give either a recipe (fastslow train RECIPE) or a run to go on with (--resume RUN)")
    from fastslow.recipe import load_recipe
    from fastslow.runs.folder import RunFolder, default_folder

    if resume is not None:
        RunFolder.open(resume)  # this and the next before the heavy libraries are imported: a mistake is told at once
        _quiet()
        from fastslow import start

        start.resume(resume, overrides=[*changed, *(overrides or [])])
    elif recipe is not None:
        loaded = load_recipe(recipe, overrides or [])
        folder = default_folder(loaded, recipe.stem)
        RunFolder(folder).refuse_existing()
        _quiet()
        from fastslow import start

        start.train(loaded, folder)


@app.command()
def quickstart(
    overrides: Overrides = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the runs go.")] = Path("runs/quickstart"),
) -> None:
    """Both loops and each alone at equal rollouts, on a small task with the embedded model. Goes on where it was stopped."""
    _quiet()
    from fastslow.study.quickstart import run_quickstart

    run_quickstart(overrides or [], out, console)


@app.command("recipe")
def show_recipe(recipe: RecipeFile, overrides: Overrides = None) -> None:
    """Print a recipe as it would run, every default filled in."""
    from fastslow.recipe import dump_recipe, load_recipe
    from fastslow.tasks.registry import check_options

    loaded = load_recipe(recipe, overrides or [])
    check_options(loaded)
    console.print(dump_recipe(loaded), highlight=False, markup=False, end="")


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show this task.")] = None,
    options: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the task.")] = None,
    count: Annotated[int, typer.Option("--count", help="Examples to show.")] = 2,
) -> None:
    """List the tasks, or show one: its options, its seed text and rendered examples."""
    from fastslow.tasks.show import list_tasks, show_task

    if name is None:
        list_tasks(console)
    else:
        show_task(name, options or [], count, console)


@app.command("eval")
def evaluate(
    run: RunPath,
    checkpoint: AtStep = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Rollouts per problem.")] = 8,
    split: Annotated[str, typer.Option("--split", help="validation, test or train.")] = "validation",
    pool: Annotated[bool, typer.Option("--pool", help="Every context of the pool, not only the best.")] = False,
) -> None:
    """Measure a run's policy on held-out problems under its best context and under the seed."""
    _known_split(split)
    _quiet()
    from fastslow.evaluation.stored import evaluate_run

    with console.status("evaluating"):
        scores = evaluate_run(run, step=checkpoint, k=k, split=split, whole_pool=pool)  # type: ignore[arg-type]
    table = Table("context", "id", f"mean@{k} (95% interval)", f"best@{k} (95% interval)", "problems", "tokens")
    for label, score in scores.items():
        table.add_row(
            label,
            score.context,
            f"{score.mean:.3f} ({score.low:.3f} to {score.high:.3f})",
            f"{score.best:.3f} ({score.best_low:.3f} to {score.best_high:.3f})",
            str(score.problems),
            f"{score.response_length:.0f}",
        )
    console.print(table)


@app.command()
def divergence(
    run: RunPath,
    split: Annotated[str, typer.Option("--split", help="validation or test.")] = "validation",
    problems: Annotated[int | None, typer.Option("--problems", min=1, help="Problems; as in the recipe.")] = None,
) -> None:
    """Measure how far each checkpoint of a run has moved from the base model, under its best context and the seed."""
    _known_split(split)
    _quiet()
    from fastslow.evaluation.stored import measure_divergence
    from fastslow.runs.tables import DIVERGENCE

    with console.status("measuring") as status:
        rows = measure_divergence(run, split=split, problems=problems, progress=status.update)  # type: ignore[arg-type]
    table = Table(
        "step", "context", "KL, nats a token", "95% interval", "reward", title=f"on {rows[0].problems} problems"
    )
    for row in rows:
        shown = (f"{row.kl:.5f}", f"{row.low:.5f}–{row.high:.5f}", f"{row.reward:.3f}")
        table.add_row(str(row.step), row.context, *shown)
    console.print(table)
    console.print(f"written to {run / DIVERGENCE}", highlight=False)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, finished or not.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the tables and pictures go.")] = Path(
        "comparison"
    ),
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="What the others are held against; rl when not given.")
    ] = None,
    rollouts: Annotated[
        int | None, typer.Option("--rollouts", min=0, metavar="N", help="Only what the runs were within N rollouts.")
    ] = None,
) -> None:
    """Line up runs, methods by seeds: reward against steps, rollouts, tokens and time, cost of the baseline's peak, KL."""
    from fastslow.study.compare import compare_runs

    compare_runs(runs, out, console, baseline, rollouts)


@app.command()
def suite(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN... [KEY=VALUE]...", help="Run folders; settings of the fast loop.")
    ],
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="rulebook/harbour, or {name: rulebook, book: harbour}; repeat it."),
    ] = None,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="Settings; else those of the first run.")] = None,
    cycles: Annotated[int, typer.Option("--cycles", min=1, help="Cycles of GEPA.")] = 1,
    k: Annotated[int, typer.Option("--k", min=1, help="Rollouts per problem.")] = 8,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the runs go.")] = Path("runs/suite"),
) -> None:
    """GEPA alone from the base model and from the weights of runs, on several tasks: a table and a radar. Goes on where it
    was stopped."""
    _quiet()
    from fastslow.study.suite import run_suite

    folders = [argument for argument in runs if "=" not in argument]
    settings = [argument for argument in runs if "=" in argument]
    run_suite(folders, task or [], out, console, recipe=recipe, overrides=settings, cycles=cycles, k=k)


@app.command()
def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="data-efficiency, asymptote, …, or all.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE] [KEY=VALUE]...", help="What to start from; else nano on a rulebook."),
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds, with commas.")] = "0,1,2",
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="A further task, where a study needs one: NAME or {name: …, …}; repeat it."),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Runs at a time.")] = 1,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the runs go.")] = Path("runs/studies"),
) -> None:
    """Answer a question about the method on your model and task: runs, a table beside the published one, a picture. Goes on
    where it was stopped; studies share runs."""
    _quiet()
    from fastslow.study.studies import run_study

    given = settings or []
    recipe = Path(given.pop(0)) if given and "=" not in given[0] else None
    run_study(
        name,
        console,
        recipe=recipe,
        overrides=given,
        tasks=task or [],
        seeds=_numbers(seeds),
        parallel=jobs,
        out=out,
    )


@app.command()
def contexts(
    run: RunPath, full: Annotated[bool, typer.Option("--full", help="Whole texts and all feedback.")] = False
) -> None:
    """Show how the text evolved: a lineage with scores and differences."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.lineage import show_contexts

    show_contexts(RunFolder.open(run), console, full=full)


@app.command()
def ledger(run: RunPath, steps: Annotated[bool, typer.Option("--steps", help="Also step by step.")] = False) -> None:
    """Show what a run spent: rollouts, tokens, seconds and cost, by purpose and by cycle."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.spending import show_ledger

    show_ledger(RunFolder.open(run), console, steps=steps)


@app.command()
def export(run: RunPath, folder: Annotated[Path, typer.Argument(metavar="DIR")], checkpoint: AtStep = None) -> None:
    """Write a run as a standard model folder: merged weights, best context as system prompt, pool, model card."""
    _quiet()
    from fastslow.runs.export import export_run

    console.print(f"exported to {export_run(run, folder, checkpoint)}")


@app.command()
def doctor() -> None:
    """What is installed, what a run would use, what is missing; then a small run to see that it works."""
    _quiet()
    from fastslow.commands.doctor import examine

    examine(console)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise FastSlowError(f"--seeds {text}: expected whole numbers with commas, such as 0,1,2") from None


def _known_split(split: str) -> None:
    if split not in ("validation", "test", "train"):
        raise FastSlowError(f"--split {split}: expected validation, test or train")


def _quiet() -> None:
    """Libraries keep their remarks to themselves; what matters is in the view and the run folder."""
    warnings.filterwarnings("ignore")
    warnings.filterwarnings("default", category=FastSlowWarning)
    logging.disable(logging.WARNING)
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


def main(arguments: list[str] | None = None) -> Any:
    """Run a command; an error a person can act on is one message on stderr and exit code 2."""
    try:
        return app(arguments)
    except FastSlowError as error:
        Console(stderr=True).print(f"[bold red]error:[/] {_escaped(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(2)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
