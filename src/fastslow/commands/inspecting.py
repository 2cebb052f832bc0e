"""The commands that look: at a recipe, the tasks and the machine, and at what is in runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from fastslow.base.errors import FastSlowError
from fastslow.base.text import printable
from fastslow.commands.shared import (
    AtStep,
    Json,
    Overrides,
    RecipeFile,
    Rollouts,
    RunPath,
    SplitName,
    Trust,
    checked_split,
    console,
    loading,
    results,
)


def check(recipe: RecipeFile, overrides: Overrides = None, as_json: Json = False) -> None:
    """Say what a recipe would spend and what is missing, before anything is spent."""
    loading("the task and the tokenizer")
    from fastslow.launch.estimate import check as findings
    from fastslow.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or [])
    with results(as_json) as write:
        found = list(findings(loaded))
        missing = [f"{finding.what}: {finding.found}" for finding in found if finding.missing]
        if as_json:
            write({"recipe": recipe, "ready": not missing, "findings": [asdict(finding) for finding in found]})
        else:
            _print_rows([Text(finding.what), Text(finding.found)] for finding in found if not finding.missing)
        if missing:
            raise FastSlowError("\n".join(missing))
        if not as_json:
            console.print("nothing is missing")


def show_recipe(recipe: RecipeFile, overrides: Overrides = None) -> None:
    """Print a recipe with all defaults and overrides applied."""
    from fastslow.recipe import dump_recipe, load_recipe
    from fastslow.tasks.registry import check_options

    loaded = load_recipe(recipe, overrides or [])
    check_options(loaded)
    console.print(dump_recipe(loaded), highlight=False, markup=False, soft_wrap=True, end="")


def tasks(
    name: Annotated[str | None, Argument(metavar="NAME", help="The task to show.")] = None,
    options: Annotated[list[str] | None, Argument(metavar="[KEY=VALUE]...", help="Options of the task.")] = None,
    count: Annotated[int, Option(help="Number of examples to show.")] = 2,
    as_json: Json = False,
) -> None:
    """List the tasks, or show one: its options, its seed text and rendered examples."""
    from fastslow.tasks.show import describe_task, list_tasks, show_task, show_tasks

    with results(as_json) as write:
        if name is None:
            listed = list_tasks()
            if as_json:
                write(listed)
            else:
                show_tasks(listed, console)
            return
        described = describe_task(name, options or [], count)
        if as_json:
            write(described)
        else:
            show_task(described, console)


MARKS = {"good": Text("✓", style="green"), "absent": Text("–", style="dim"), "wrong": Text("✗", style="bold red")}


def doctor(as_json: Json = False) -> None:
    """Check what is installed, what a run would use and what is missing; then train a small run as a test."""
    loading("torch")
    from fastslow.launch.doctor import findings, self_test

    with results(as_json) as write:
        found = list(findings())
        if not as_json:
            _print_rows(
                [MARKS[each.state], Text(each.what), Text(each.found), Text(each.advice, style="dim")] for each in found
            )
        wrong = [f"{each.what}: {each.found}; {each.advice}" for each in found if each.state == "wrong"]
        if not wrong:
            with console.status("a small run with nano"):
                tested = self_test()
            found.append(tested)
            if not as_json:
                console.print(Text.assemble(MARKS[tested.state], f" {tested.what}: {tested.found}"), soft_wrap=True)
            wrong = [f"{tested.what}: {tested.advice}"] if tested.state == "wrong" else []
        if as_json:
            write({"ready": not wrong, "findings": [asdict(finding) for finding in found]})
        if wrong:
            raise FastSlowError("\n".join(wrong))


def _print_rows(rows: Iterable[Sequence[Text]]) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def evaluate(
    run: RunPath,
    checkpoint: AtStep = None,
    k: Rollouts = 8,
    split: SplitName = "validation",
    trust: Trust = False,
    pool: Annotated[bool, Option("--pool", help="Evaluate every context of the pool, not only the best.")] = False,
    as_json: Json = False,
) -> None:
    """Evaluate a run's policy on held-out problems, under its best context and under the seed text."""
    chosen = checked_split(split)
    loading()
    from fastslow.launch.evaluate import evaluate_run

    with results(as_json) as write:
        with console.status("evaluating"):
            scores = evaluate_run(run, step=checkpoint, k=k, split=chosen, whole_pool=pool, trust=trust)
        if as_json:
            contexts = {label: score.to_dict() for label, score in scores.items()}
            write({"run": run, "split": chosen, "k": k, "contexts": contexts})
            return
        table = Table("context", "id", f"mean@{k} (95% interval)", f"best@{k} (95% interval)", "problems", "tokens")
        for label, score in scores.items():
            mean = f"{score.mean:.3f} ({score.low:.3f} to {score.high:.3f})"
            best = f"{score.best:.3f} ({score.best_low:.3f} to {score.best_high:.3f})"
            table.add_row(label, score.context, mean, best, str(score.problems), f"{score.response_length:.0f}")
        console.print(table)


def divergence(
    run: RunPath,
    split: SplitName = "validation",
    problems: Annotated[int | None, Option(min=1, help="Number of problems; the recipe's by default.")] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Measure the KL from the base model at each checkpoint of a run, under its best context and under the seed text."""
    chosen = checked_split(split)
    loading()
    from fastslow.launch.evaluate import measure_divergence
    from fastslow.runs.tables import DIVERGENCE

    with results(as_json) as write:
        with console.status("measuring") as status:
            rows = measure_divergence(run, split=chosen, problems=problems, progress=status.update, trust=trust)
        if as_json:
            write({"run": run, "split": chosen, "checkpoints": [asdict(row) for row in rows], "file": run / DIVERGENCE})
            return
        table = Table(
            "step", "context", "KL, nats a token", "95% interval", "reward", title=f"on {rows[0].problems} problems"
        )
        for row in rows:
            shown = (f"{row.kl:.5f}", f"{row.low:.5f}–{row.high:.5f}", f"{row.reward:.3f}")
            table.add_row(str(row.step), row.context, *shown)
        console.print(table)
        console.print(f"written to {run / DIVERGENCE}", highlight=False)


def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders, finished or not.")],
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the tables and figures.")] = Path("comparison"),
    baseline: Annotated[
        str | None, Option(metavar="ARM", help="Arm or method that the others are compared with; rl by default.")
    ] = None,
    rollouts: Annotated[
        int | None, Option(min=0, metavar="N", help="Truncate every run at N rollouts before comparing.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare runs over methods and seeds: reward by steps, rollouts, tokens and time, cost of the baseline's peak, KL."""
    from fastslow.study.report import compare_runs

    with results(as_json) as write:
        found = compare_runs(runs, out, console, baseline, rollouts)
        if as_json:
            write(found)


def contexts(
    run: RunPath,
    full: Annotated[bool, Option("--full", help="Show whole texts and all feedback.")] = False,
    best: Annotated[bool, Option("--best", help="Print the text of the best context and nothing else.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the contexts, or with --best the best, as JSON.")] = False,
) -> None:
    """Show how the contexts of a run evolved: their lineage, scores and edits.

    `fastslow contexts RUN --best > prompt.txt` writes the prompt alone. With several components, each text follows its
    name in brackets.
    """
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.lineage import best_context, read_contexts
    from fastslow.runs.tree import show_contexts

    folder = RunFolder.open(run)
    if as_json:
        found: Any = best_context(folder).to_dict() if best else [each.to_dict() for each in read_contexts(folder)]
        _write(json.dumps(found, ensure_ascii=False, indent=2))
    elif best:
        texts = best_context(folder).texts
        named = [f"[{name}]\n{text}" for name, text in texts.items()]
        _write("\n\n".join(named if len(named) > 1 else texts.values()))
    else:
        show_contexts(folder, console, full=full)


def _write(text: str) -> None:
    """Write the text exactly as it is to a file or a pipe; a terminal gets it without control characters."""
    shown = printable(text) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    print(shown.encode(encoding, "backslashreplace").decode(encoding))


def rollouts(
    run: RunPath,
    worst: Annotated[bool, Option("--worst", help="The lowest scores first.")] = False,
    best: Annotated[bool, Option("--best", help="The highest scores first.")] = False,
    step: Annotated[int | None, Option(metavar="N", help="A step; the newest by default.")] = None,
    cycle: Annotated[int | None, Option(metavar="N", help="A cycle of the fast loop instead.")] = None,
    context: Annotated[str | None, Option(metavar="ID", help="Rollouts of the whole run under this context.")] = None,
    problem: Annotated[str | None, Option(metavar="ID", help="Rollouts of the whole run on this problem.")] = None,
    limit: Annotated[int, Option(min=1, metavar="N", help="Number of rollouts to show.")] = 8,
    as_json: Json = False,
) -> None:
    """Show what the policy answered: question, context, answer, score and the grader's words."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.rollouts import Choice, choose_rollouts, show_rollouts

    if worst and best:
        raise FastSlowError("--worst and --best are both given; give one of them")
    if step is not None and cycle is not None:
        raise FastSlowError("--step and --cycle are both given; give one of them")
    order: Literal["worst", "best"] | None = "worst" if worst else "best" if best else None
    chosen = choose_rollouts(RunFolder.open(run), Choice(step, cycle, context, problem, order, limit))
    with results(as_json) as write:
        if as_json:
            write(asdict(chosen))
        else:
            show_rollouts(chosen, console)


def ledger(
    run: RunPath, steps: Annotated[bool, Option("--steps", help="Also show every step.")] = False, as_json: Json = False
) -> None:
    """Show what a run spent: rollouts, tokens, seconds and cost, by purpose and by cycle."""
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.spending import show_ledger, spending

    opened = RunFolder.open(run)
    with results(as_json) as write:
        if as_json:
            write(spending(opened, steps=steps))
        else:
            show_ledger(opened, console, steps=steps)


def export(
    run: RunPath,
    folder: Annotated[Path, Argument(metavar="DIR", help="A new folder for the model.")],
    checkpoint: AtStep = None,
    internalized: Annotated[
        bool, Option("--internalized", help="Export the weights of `fastslow internalize`, with the seed text.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Export a run as a Hugging Face model folder: merged weights, best context as system prompt, pool, model card."""
    loading()
    from fastslow.launch.export import export_run

    console.print(f"exported to {export_run(run, folder, checkpoint, internalized=internalized, trust=trust)}")
