"""Looking for the best solution of one problem: the recipe, the run, and the check of its result from scratch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.base.errors import RecipeError, RunError
from fastslow.base.terminal import without_bars
from fastslow.discover.neighbours.export import FORMATS, export
from fastslow.discover.problem import Problem, Scored, load_problem
from fastslow.discover.search import BEST, CHECKS, require
from fastslow.launch import start
from fastslow.launch.api import one_at_a_time
from fastslow.recipe import Recipe, make_recipe
from fastslow.runs import files
from fastslow.runs.folder import RunFolder, default_folder, folder_path
from fastslow.runs.view import View

LEARNERS = ("archive", "text", "weights")
STEPS = 100_000
"""More than any budget allows; a search ends by its budget or target."""
SETTINGS: Mapping[str, Any] = {
    "slow": {"problems": 4, "group": 8, "steps": STEPS, "advantage": "entropic", "patience": None, "warmup_steps": 0},
    "fast": {"population": 2, "cycle": 5, "anchors": 4, "budget": 32, "minibatch": 2},
    "sampling": {"max_tokens": 4096},
    "evaluation": {"every": 0},
    "output": {"checkpoint_every": 5, "keep_checkpoints": 2},
}
"""Where a search differs from the defaults of a recipe."""
EVALUATIONS = 1000


@dataclass(frozen=True)
class Found:
    """The result of a search."""

    folder: Path
    score: float | None
    """Of the best candidate, as it was verified from scratch at the end; None if no valid one was found."""
    candidate: str
    file: Path | None
    """Where the candidate is."""
    words: str
    evaluations: int


def discover(
    problem: str | os.PathLike[str] | None = None,
    *,
    learn: str | None = None,
    evaluations: int | None = None,
    tokens: int | None = None,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    view: View | None = None,
    **settings: Any,
) -> Found:
    """Look for the best solution of a problem (docs/discover.md), and return it.

        found = fastslow.discover("problem.py", model="Qwen/Qwen2.5-Coder-1.5B-Instruct", evaluations=2000)
        print(found.score, found.file)

    `settings` are those of a recipe, sections or dotted keys. `learn` names what learns: `archive`, `text` and `weights`, or
    `none`; by default all three. `resume` continues an interrupted search in its folder.
    """
    if (problem is None) == (resume is None):
        raise RecipeError("give either a problem or, with resume, the folder of a search")
    with one_at_a_time(), without_bars():
        if resume is not None:
            place = folder_path(resume)
            changes = {"task.evaluations": evaluations, "task.tokens": tokens, "task.seconds": seconds, **settings}
            overrides = [f"{key}={value}" for key, value in changes.items() if value is not None]
            start.resume(place, view, overrides=overrides)
        else:
            assert problem is not None, "checked above"
            budget = {"evaluations": evaluations, "tokens": tokens, "seconds": seconds}
            loaded = load_problem(os.fspath(problem))
            recipe = search_recipe(loaded, os.fspath(problem), learn, budget, settings)
            place = default_folder(recipe, f"discover-{loaded.name}") if folder is None else folder_path(folder)
            start.train(recipe, place, view)
    return verified_result(place)


def search_recipe(
    problem: Problem, path: str, learn: str | None, budget: Mapping[str, Any], settings: Mapping[str, Any]
) -> Recipe:
    """The recipe of a search, from its defaults, what learns, and the settings given."""
    chosen = learners(learn)
    given = {key: value for key, value in budget.items() if value is not None}
    limits = given or {"evaluations": EVALUATIONS}
    task = {"name": "discover", "path": path, "archive": "archive" in chosen, **limits}
    base: dict[str, Any] = {key: dict(value) for key, value in SETTINGS.items()} | {"task": task}
    # Evaluators wait for candidates, which have limits of their own; the sandbox ends both long before this.
    base["grading"] = {"timeout": max(300.0, 10 * problem.seconds + 60)}
    if {"text", "weights"} <= chosen:
        base["method"] = "fst"
    elif "text" in chosen:
        base["method"] = "gepa"
        base["fast"]["cycle"] = 1
    else:
        base["method"] = "rl"
    if "weights" not in chosen:
        base["slow"] |= {"advantage": "none", "kl": 0.0}
    if "model" not in settings and not any(key.startswith("model.") for key in settings):
        raise RecipeError(
            "a search needs a model to propose candidates; give one, such as model=Qwen/Qwen2.5-Coder-1.5B-Instruct"
        )
    recipe = make_recipe(settings, base)
    require(recipe)
    return recipe


def learners(learn: str | None) -> set[str]:
    """What learns, by name."""
    chosen = set(LEARNERS) if learn is None else {each.strip() for each in learn.split(",")} - {"none", ""}
    if unknown := sorted(chosen - set(LEARNERS)):
        raise RecipeError(f"learn={learn} names '{unknown[0]}'; expected some of {', '.join(LEARNERS)}, or none")
    return chosen


def verified_result(folder: Path) -> Found:
    """The best candidate of a search, evaluated again from scratch; raises if its score does not hold."""
    run = RunFolder.open(folder)
    options = run.recipe.tasks[0].options
    problem = load_problem(options["path"])
    said = run.read_json(BEST)
    evaluations = sum("text" in row for row in run.rows("candidates"))
    if said is None:
        return Found(folder, None, "", None, "no valid candidate was found", evaluations)
    file = folder / f"best{problem.suffix}"
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RunError(f"the best candidate of '{folder}' cannot be read: {error}") from None
    checks = [problem.verify(text) for _ in range(CHECKS)]
    score = said["score"]
    if not _holds(problem, score, checks):
        found = ", ".join("invalid" if each.score is None else f"{each.score:.10g}" for each in checks)
        raise RunError(
            f"the score {score:.10g} of '{file}' does not hold: evaluated from scratch it is {found}; the evaluator is not "
            "repeatable, or the file was changed (docs/discover.md)"
        )
    files.write_json(folder / BEST, {**said, "checked": [each.score for each in checks]})
    return Found(folder, score, text, file, str(said["words"]), evaluations)


def exported(folder: Path, kind: str) -> Path:
    """Write the result of a search as OpenEvolve or gepa would, in a folder of that name in the run folder."""
    if kind not in FORMATS:
        raise RunError(f"there is no format '{kind}' for the result of a search; expected one of {', '.join(FORMATS)}")
    run = RunFolder.open(folder)
    best = run.read_json(BEST)
    if best is None:
        raise RunError(f"'{folder}' has no best candidate to write as {kind}'s")
    problem = load_problem(run.recipe.tasks[0].options["path"])
    return export(kind, problem, best, list(run.rows("candidates")), folder / kind)


def _holds(problem: Problem, score: float, checks: list[Scored]) -> bool:
    scores = [each.score for each in checks if each.score is not None]
    return len(scores) == len(checks) and problem.agree([score, *scores])
