"""`fastslow study NAME`: the studies, the runs that each needs, and a figure and a table beside the published numbers.

These are from the Fast-Slow Training paper (arXiv 2605.12484), on far larger models and other tasks, without seeds or
intervals: they say what to look for, not what to expect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fastslow.base.errors import FastSlowError, Interrupted
from fastslow.recipe import Recipe, load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.frames import write_csv
from fastslow.study.arms import BASE, LOOKS, Arm, make_arm
from fastslow.study.conclusions import CONCLUSIONS
from fastslow.study.figures import save
from fastslow.study.suite import read_task
from fastslow.study.training import Job, Variant, jobs_of, refuse_wrong_base, run_jobs

Tasks = Sequence[dict[str, Any]]
"""The recipe's task and the further ones that were given, as settings."""


@dataclass(frozen=True)
class Study:
    """A question, the runs that answer it and what the paper says."""

    name: str
    question: str
    variants: Callable[[Recipe, Tasks], list[Variant]]
    published: Mapping[str, str]
    """Published values, by what was measured."""
    tasks: int = 1
    """How many tasks it needs, including the recipe's own."""


FST = Variant("fst", "FST")
RL = Variant("rl", "RL only", ("method=rl",), equal_to=FST)
GEPA = Variant("gepa", "GEPA only", ("method=gepa",), equal_to=FST)
DISTILL = Variant("distill", "FST-distill", ("method=distill",))
REUSE = Variant("fst-reuse", "FST, rollouts reused", ("fast.reuse=true",))


def _always(*variants: Variant) -> Callable[[Recipe, Tasks], list[Variant]]:
    """Variants that depend neither on the recipe nor on further tasks."""
    return lambda base, tasks: list(variants)


def _plasticity(base: Recipe, tasks: Tasks) -> list[Variant]:
    """FST and RL on the first task, with equal steps; then plain RL on the second, from each of them and from base."""
    first_rl = Variant("rl-same-steps", "RL on the first task", ("method=rl",))
    then = ("method=rl", f"task={json.dumps(tasks[1])}")
    return [
        Variant("plasticity-base", "from the base model", then),
        Variant("plasticity-rl", "after RL on another task", then, after=first_rl),
        Variant("plasticity-fst", "after FST on another task", then, after=FST),
    ]


def _continual(base: Recipe, tasks: Tasks) -> list[Variant]:
    stages = json.dumps([{**task, "steps": base.slow.steps} for task in tasks])
    return [
        Variant("continual-fst", "FST", (f"stages={stages}",)),
        Variant("continual-rl", "RL only", ("method=rl", f"stages={stages}")),
    ]


def _star_graph(base: Recipe, tasks: Tasks) -> list[Variant]:
    task = f"task={json.dumps(tasks[1])}"
    fst = Variant("star-graph-fst", "FST", (task,))
    return [fst, Variant("star-graph-rl", "RL only", (task, "method=rl"), equal_to=fst)]


def _ablations(base: Recipe, tasks: Tasks) -> list[Variant]:
    group, cycle = base.slow.group, base.fast.cycle
    sizes = [size for size in (1, 2, 4, 8) if group % size == 0 and size != base.fast.population]
    proposer = {"light": "full", "full": "light"}.get(base.fast.optimizer.options.get("proposer", ""))
    shared = next(size for size in (base.fast.population, 2, 1) if group % size == 0 and group > size)
    own = ("slow.baseline=prompt", f"fast.population={shared}")
    half = max(1, cycle // 2)
    return [
        *(FST, RL),
        *(Variant(f"fst-k{size}", f"K = {size}", (f"fast.population={size}",)) for size in sizes),
        Variant("fst-prompt-baseline", f"baseline of each context, K = {shared}", own),
        Variant("fst-t-double", f"T = {2 * cycle}", (f"fast.cycle={2 * cycle}",)),
        Variant("fst-t-half", f"T = {half}", (f"fast.cycle={half}",)),
        *(
            [Variant(f"fst-{proposer}", f"{proposer} proposer", (f"fast.optimizer.proposer={proposer}",))]
            if proposer
            else []
        ),
        Variant("fst-policy-reflection", "the policy reflects", ("fast.reflection=policy",)),
        Variant("fst-no-feedback", "scores without feedback text", ("fast.feedback=false",)),
        replace(REUSE, label="rollouts reused"),
    ]


_VARIANTS: dict[str, Callable[[Recipe, Tasks], list[Variant]]] = {
    "data-efficiency": _always(FST, RL, GEPA),
    "asymptote": _always(FST, RL),
    "divergence": _always(FST, RL, DISTILL),
    "plasticity": _plasticity,
    "continual": _continual,
    "star-graph": _star_graph,
    "ceiling": _always(FST, RL, GEPA),
    "ablations": _ablations,
    "reuse": _always(FST, REUSE, RL),
}
STUDIES = {
    name: Study(name, variants=_VARIANTS[name], **given)
    for name, given in yaml.safe_load(Path(__file__).with_name("questions.yaml").read_text()).items()
}


SMALL_STAR = {"name": "star-graph", "degree": 2, "path": 3, "nodes": 10}
"""A star graph that nano can write down."""
RECIPE = Path(__file__).with_name("studies.yaml")
"""Trained where no recipe is given."""
BOOKS = ("harbour", "orchard")
"""Further rulebooks for recipes with a rulebook, where no further tasks are given."""


def run_study(
    name: str,
    console: Console,
    *,
    recipe: Path | None = None,
    overrides: Sequence[str] = (),
    tasks: Sequence[str] = (),
    seeds: Sequence[int] = (0, 1, 2),
    parallel: int = 1,
    out: Path = Path("runs/studies"),
) -> dict[str, Any]:
    """Train the runs that are not finished, then show the conclusion and return it. `all` runs every study in turn."""
    if name != "all" and name not in STUDIES:
        raise FastSlowError(f"no study '{name}'; expected {', '.join(STUDIES)} or all")
    base = load_recipe(recipe or RECIPE, overrides)
    refuse_wrong_base(base, out)
    if base.stages or isinstance(base.task, list):
        raise FastSlowError("a study starts from a recipe with one task; give further tasks with --task")
    chosen = STUDIES.values() if name == "all" else [STUDIES[name]]
    plans = [(study, study.variants(base, _tasks(study, base, tasks))) for study in chosen]
    found: dict[str, Any] = {}
    for study, variants in plans:
        console.print(Text(f"\n{study.name}: {study.question}", style="bold"), soft_wrap=True)
        jobs = jobs_of(variants, seeds, out)
        try:
            _run(jobs, base, parallel, console)
        except KeyboardInterrupt:
            raise Interrupted(
                f"interrupted; repeat the command to resume (finished runs are kept in '{out}')"
            ) from None
        arms = _arms([[job for job in jobs if job.variant == variant] for variant in variants])
        conclusion = CONCLUSIONS[study.name](arms, _subtitle(base, study, len(seeds)))
        save(conclusion.figure, out, study.name)
        write_csv(out / f"{study.name}.csv", conclusion.rows())
        slow, fast = base.slow, base.fast
        differs = (
            f"Ours: {base.model.name}, {base.tasks[0].name}, {slow.steps} steps of {slow.problems * slow.group} rollouts, "
            f"K = {fast.population}, T = {fast.cycle}, budget {fast.budget}, reflection by "
            f"{fast.reflection.options.get('model') or fast.reflection.kind}; "
            "the paper: a far larger model, 500 steps of 256 rollouts, K = 4 or 8, T = 6, budget 960, reflection by gpt-5.2, "
            "scores in per cent, no seeds, no intervals."
        )
        table = conclusion.table(differs)
        table.add_section()
        for measure, value in study.published.items():
            table.add_row(Text("the paper", style="italic"), Text(measure), Text(value))
        console.print(table)
        where = f"The figure is in {out / study.name}.png (and .svg), the numbers are in {study.name}.csv."
        console.print(Text(where), soft_wrap=True)
        found[study.name] = {
            "question": study.question,
            "finding": conclusion.finding,
            "numbers": conclusion.rows(),
            "published": dict(study.published),
            "figure": out / f"{study.name}.png",
        }
    return found


def _tasks(study: Study, base: Recipe, given: Sequence[str]) -> list[dict[str, Any]]:
    """The recipe's own task and as many more as the study needs."""
    own = {"name": base.tasks[0].name, **base.tasks[0].options}
    further = [read_task(text) for text in given]
    if not further and study.name == "star-graph":
        further = [SMALL_STAR]
    elif not further and own["name"] == "rulebook":
        further = [{**own, "book": book} for book in BOOKS if book != own.get("book")]
        if study.name == "plasticity":  # plain RL cannot find a book's rules, so the seed text has them all
            further = [{**task, "told": task.get("words", 6)} for task in further]
    if len(further) < study.tasks - 1:
        raise FastSlowError(
            f"the study {study.name} needs {study.tasks - 1} task(s) beside the recipe's own, but {len(further)} are given; "
            "add --task NAME or --task '{name: rulebook, book: harbour}'"
        )
    chosen = [own, *further[: study.tasks - 1]]
    if any(task in chosen[:place] for place, task in enumerate(chosen)):
        raise FastSlowError(f"the study {study.name} needs different tasks, but {chosen} repeats one")
    return chosen


def _run(jobs: Sequence[Job], base: Recipe, parallel: int, console: Console) -> None:
    """Run the jobs with a live table of their states; outside a terminal, print a line for every run that ends."""
    states: dict[str, str] = {}

    def table() -> Table:
        shown = Table.grid(padding=(0, 2))
        for run, state in states.items():
            shown.add_row(Text(run), Text(state, overflow="ellipsis", no_wrap=True))
        return shown

    def tell(run: str, state: str) -> None:
        ended = state in ("finished", "failed") and states.get(run) not in (None, state)
        if ended and not console.is_terminal:
            console.print(Text(f"{run}: {state}"), soft_wrap=True)
        states[run] = state

    live = Live(get_renderable=table, console=console, transient=True)
    with live if console.is_terminal else nullcontext():
        run_jobs(jobs, base, parallel, tell)


def _arms(groups: Sequence[Sequence[Job]]) -> list[Arm]:
    """The runs of each variant as an arm. Arms that share a look differ in their line style; where some start from another
    run's weights, each takes the look of that run."""
    arms: list[Arm] = []
    start_elsewhere = any(jobs[0].before for jobs in groups)
    for jobs in groups:
        runs = [RunFolder.open(job.folder) for job in jobs]
        method, own = runs[0].recipe.method, None
        if start_elsewhere:
            before = jobs[0].before
            own = replace(LOOKS[RunFolder.open(before.folder).recipe.method] if before else BASE, does="")
        alike = sum(arm.look == (own or LOOKS[method]) for arm in arms)
        arms.append(make_arm(jobs[0].variant.label, method, runs, alike, own))
    return arms


def _subtitle(base: Recipe, study: Study, seeds: int) -> str:
    tasks = {
        "continual": "three tasks in sequence (grey: the stage that trains on the task)",
        "plasticity": "a second task",
        "star-graph": "star-graph",
    }
    task = tasks.get(study.name, base.tasks[0].name)
    bands = "; bands and bars: 95% over seeds" if seeds > 2 else ""
    return f"{base.model.name}, {task}, {seeds} seed{'s' if seeds > 1 else ''}{bands}"
