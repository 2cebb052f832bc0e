"""The commands that run a model: to train, to compare methods, to evaluate, to internalize and to export."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from fastslow.base.errors import FastSlowError
from fastslow.commands.inspecting import beside, listen
from fastslow.commands.shared import (
    AtStep,
    Json,
    Overrides,
    Rollouts,
    RunPath,
    SplitName,
    Tasks,
    Trust,
    checked_split,
    console,
    loading,
    read_step,
    results,
)

if TYPE_CHECKING:
    from fastslow.gateway.session import Session


def train(
    recipe: Annotated[Path | None, Argument(metavar="RECIPE", help="A recipe file; - is standard input.")] = None,
    overrides: Overrides = None,
    resume: Annotated[Path | None, Option(metavar="RUN", help="Resume this run instead.")] = None,
    step: Annotated[
        int | None, Option(min=0, metavar="STEP", help="Resume from this checkpoint, not the newest; 0 starts over.")
    ] = None,
    trust: Trust = False,
    other_data: Annotated[
        bool, Option("--other-data", help="Resume although the problems or the grader have changed.")
    ] = False,
    board: Annotated[bool, Option("--board", help="Show the run in a browser while it trains.")] = False,
) -> None:
    """Train a recipe, resume an interrupted run, or extend a finished one.

    On resume, settings that fit the run to the machine, grading.faulty and grading.timeout can be changed, and slow.steps
    and rollouts can be raised (docs/run-folder.md).
    """
    changed = overrides or []
    if resume is not None and recipe is not None and "=" in str(recipe):  # no recipe: the first KEY=VALUE
        recipe, changed = None, [str(recipe), *changed]
    if (recipe is None) == (resume is None):
        raise FastSlowError(
            "give either a recipe (fastslow train RECIPE) or a run to resume (fastslow train --resume RUN)"
        )
    loading()
    from fastslow.recipe import STDIN, load_recipe
    from fastslow.runs.folder import RunFolder, default_folder

    shown = board and os.environ.get("RANK", "0") == "0"  # on the main process
    if resume is not None:
        RunFolder.open(resume)
        from fastslow.launch import start

        with beside(resume) if shown else nullcontext():
            start.resume(resume, overrides=changed, step=step, trust=trust, other_data=other_data)
    elif recipe is not None:
        loaded = load_recipe(recipe, changed)
        folder = default_folder(loaded, "stdin" if recipe == STDIN else recipe.stem)
        RunFolder(folder).refuse_existing()
        from fastslow.launch import start

        with beside(folder) if shown else nullcontext():
            start.train(loaded, folder)


def quickstart(
    overrides: Overrides = None,
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the runs.")] = Path("runs/quickstart"),
) -> None:
    """Train FST, RL only and GEPA only at equal rollouts, on a small task with the embedded model.

    Repeat the command to resume.
    """
    loading()
    from fastslow.study.quickstart import run_quickstart

    run_quickstart(overrides or [], out, console())


def study(
    name: Annotated[str, Argument(metavar="NAME", help="A study, or all.")],
    settings: Annotated[
        list[str] | None,
        Argument(metavar="[RECIPE] [KEY=VALUE]...", help="The recipe to start from; by default nano on a rulebook."),
    ] = None,
    seeds: Annotated[str, Option(help="Seeds, separated by commas.")] = "0,1,2",
    task: Tasks = None,
    jobs: Annotated[int, Option(min=1, help="Runs to train in parallel.")] = 1,
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the runs.")] = Path("runs/studies"),
    as_json: Json = False,
) -> None:
    """Answer a question about the method on your model and task.

    Trains the runs that the question needs, then shows a figure and a table beside the published numbers. Studies share runs.
    Repeat the command to resume.

    data-efficiency: how many fewer steps and rollouts does FST need than RL?

    asymptote: where does training level off?

    divergence: how far do the weights move for the same reward?

    plasticity: how well does a trained model still learn another task?

    continual: which method keeps learning when the task changes?

    star-graph: which method leaves zero reward?

    ceiling: what do weights, text and both reach?

    ablations: which parts of FST matter?

    reuse: what does it save to train on the fast loop's rollouts?
    """
    try:
        numbers = [int(part) for part in seeds.split(",")]
    except ValueError:
        raise FastSlowError(f"--seeds {seeds}: expected whole numbers separated by commas, such as 0,1,2") from None
    loading("the study")
    from fastslow.study.studies import run_study

    given = settings or []
    recipe = Path(given.pop(0)) if given and "=" not in given[0] else None
    with results(as_json) as write:
        found = run_study(
            name, console(), recipe=recipe, overrides=given, tasks=task or [], seeds=numbers, parallel=jobs, out=out
        )
        if as_json:
            write(found)


def suite(
    runs: Annotated[
        list[str], Argument(metavar="RUN... [KEY=VALUE]...", help="Run folders, and settings of the fast loop.")
    ],
    task: Tasks = None,
    recipe: Annotated[
        Path | None, Option(metavar="RECIPE", help="Settings; those of the first run by default.")
    ] = None,
    cycles: Annotated[int, Option(min=1, help="Cycles of GEPA.")] = 1,
    k: Rollouts = 8,
    trust: Trust = False,
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the runs.")] = Path("runs/suite"),
    as_json: Json = False,
) -> None:
    """Run GEPA only from the base model and from the weights of runs, on several tasks.

    The results are a table and a radar chart. Repeat the command to resume.
    """
    loading()
    from fastslow.study.suite import run_suite

    folders = [argument for argument in runs if "=" not in argument]
    settings = [argument for argument in runs if "=" in argument]
    with results(as_json) as write:
        spokes = run_suite(
            folders, task or [], out, console(), recipe=recipe, overrides=settings, cycles=cycles, k=k, trust=trust
        )
        if as_json:
            write({"out": out, "scores": [asdict(spoke) for spoke in spokes]})


def internalize(
    run: RunPath,
    out: Annotated[Path | None, Option(metavar="DIR", help="A new folder; RUN/internalized by default.")] = None,
    epochs: Annotated[int, Option(min=1, help="Most epochs of supervised learning.")] = 30,
    batch: Annotated[
        int, Option(min=1, help="Rollouts per step; with --steps in whole groups of the run, at least one.")
    ] = 32,
    learning_rate: Annotated[float | None, Option(min=0, help="AdamW's learning rate; the run's by default.")] = None,
    per_problem: Annotated[int, Option(min=1, help="Most rollouts used of a problem, the newest first.")] = 4,
    score: Annotated[
        float | None,
        Option(min=0, max=1, help="The lowest score of a rollout to learn from; by default the best of each problem."),
    ] = None,
    held_back: Annotated[float, Option(min=0, max=0.9, help="Share of problems held back for early stopping.")] = 0.1,
    patience: Annotated[int, Option(min=1, help="Stop after so many epochs without a better one.")] = 3,
    sample: Annotated[
        int, Option(min=0, help="Rollouts to sample with text on further problems, to learn from too.")
    ] = 0,
    steps: Annotated[int, Option(min=0, help="Steps of on-policy distillation afterwards; they sample rollouts.")] = 0,
    microbatch: Annotated[
        int | None, Option(min=1, help="Rollouts of a micro-batch; the run's by default. Fewer need less memory.")
    ] = None,
    also: Annotated[
        str | None, Option(metavar="TASK", help="Another task to evaluate before and after, for forgetting.")
    ] = None,
    checkpoint: Annotated[
        Any, Option(metavar="STEP", parser=read_step, help="Step of the checkpoint, or last; as in export by default.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Train a run's weights to do without its text what they do with it, from its own solved rollouts.

    Needs a run with saved rollouts (output.save_rollouts=true). The run is unchanged; an interrupted command starts over.
    """
    loading()
    from rich.table import Table

    from fastslow.launch.internalize import Settings, internalize_run
    from fastslow.runs.folder import INTERNALIZED
    from fastslow.runs.view import PlainView
    from fastslow.study.suite import read_task

    settings = Settings(
        epochs, batch, learning_rate, per_problem, held_back, patience, score, sample, steps, microbatch
    )
    other = read_task(also, "--also") if also else None
    numbers = internalize_run(run, out, settings, step=checkpoint, also=other, trust=trust, view=PlainView(console()))
    table = Table("text", "reward before", "reward after", "KL before", "KL after")
    for label, before in numbers["before"].items():
        scores = (before, numbers["after"][label])
        rewards = (f"{each['mean']:.3f} ({each['low']:.3f} to {each['high']:.3f})" for each in scores)
        table.add_row(label, *rewards, *(f"{each['kl']:.4f}" for each in scores))
    console().print(table)
    kept = "" if numbers["kept"] is None else f"{numbers['kept']:.0%} of the reward with text is kept without it; "
    console().print(
        f"{kept}{numbers['rollouts']:,} rollouts of {numbers['problems']:,} problems, {numbers['seconds']:,.0f} s of "
        f"training; written to {out or run / INTERNALIZED}",
        highlight=False,
        soft_wrap=True,
    )


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
    from rich.table import Table

    from fastslow.launch.evaluate import evaluate_run

    with results(as_json) as write:
        with console().status("evaluating"):
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
        console().print(table)


def serve(
    run: RunPath,
    checkpoint: AtStep = None,
    host: Annotated[str, Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    key: Annotated[str | None, Option(envvar="FASTSLOW_KEY", help="The key that clients send; else a new one.")] = None,
    vllm: Annotated[
        list[str] | None, Option(metavar="URL", help="A vllm serve that samples, in place of this process (repeat it).")
    ] = None,
    trust: Trust = False,
) -> None:
    """Serve a run's policy, with its best context in place, to agents that call OpenAI or Anthropic."""
    from fastslow.runs.folder import RunFolder

    RunFolder.open(run)
    listening = listen(host, port)
    loading()
    try:
        from fastslow.launch.serve import serve_run
    except ModuleNotFoundError as error:
        raise FastSlowError(f'serving needs {error.name}; install it with pip install "fastslow[agents]"') from error
    key = key or f"fs-{secrets.token_urlsafe(24)}"
    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{listening.getsockname()[1]}"

    def ready(session: Session) -> None:
        console().print(f"serving {', '.join(session.models)}; Ctrl+C ends it", highlight=False, soft_wrap=True)
        for line in (f"OPENAI_BASE_URL={url}/v1", f"ANTHROPIC_BASE_URL={url}"):
            console().print(f"export {line} {line.partition('_')[0]}_API_KEY={key}", highlight=False, soft_wrap=True)

    with suppress(KeyboardInterrupt):
        serve_run(run, listening, key, step=checkpoint, trust=trust, servers=vllm or (), ready=ready)


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
    from rich.table import Table

    from fastslow.launch.evaluate import measure_divergence
    from fastslow.runs.frames import DIVERGENCE

    with results(as_json) as write:
        with console().status("measuring") as status:
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
        console().print(table)
        console().print(f"written to {run / DIVERGENCE}", highlight=False)


def export(
    run: RunPath,
    folder: Annotated[Path, Argument(metavar="DIR", help="A new folder for the model.")],
    checkpoint: AtStep = None,
    internalized: Annotated[
        bool, Option("--internalized", help="Export the weights of `fastslow internalize`, with the seed text.")
    ] = False,
    dtype: Annotated[
        str | None, Option(help="Round the weights: float32, bfloat16 or float16; as they were trained by default.")
    ] = None,
    trust: Trust = False,
) -> None:
    """Export a run as a Hugging Face model folder: merged weights, best context as system prompt, pool, model card."""
    loading()
    from fastslow.launch.export import export_run

    made = export_run(run, folder, checkpoint, internalized=internalized, dtype=dtype, trust=trust)  # type: ignore[arg-type]
    stored = json.loads((made / "config.json").read_text()).get("dtype")
    smaller = "; --dtype bfloat16 rounds them to half the size" if stored == "float32" and not dtype else ""
    console().print(f"exported to {made}, weights in {stored}{smaller}", soft_wrap=True)
