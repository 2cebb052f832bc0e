"""Before step 1: grade one real answer of every task, and call the reflection model once.

A grader with a wrong column or a reflection model with a wrong key fails on every call. It is found here, before a run folder
exists. A grader that fails on some answers only passes, and is counted during the run.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastslow.base.errors import ModelError
from fastslow.base.world import derive_seed
from fastslow.fast.reflection import LanguageModelReflector, ReflectionFailed, Reflector, Usage
from fastslow.launch.assembly import Parts
from fastslow.recipe import Recipe
from fastslow.recipe.parts import REFLECTOR
from fastslow.records import Context, Example
from fastslow.rollouts.play import GradingError, first_error, is_faulty
from fastslow.runs.ledger import Ledger
from fastslow.tasks import Task
from fastslow.tasks.stages import Mixture

MORE = 7
"""Answers that are graded after a faulty grade; the run stops if they are all faulty."""


def preflight(recipe: Recipe, parts: Parts, reflector: Reflector | None) -> Ledger:
    """Raise if grading or reflection fails on every call; returns what the calls cost."""
    spent = Ledger()
    for number, problems in enumerate(_problems_of_each(parts.task)):
        _grade(recipe, parts, problems, number, spent)
    # `lessons` asks no model, and `policy` the one that has just answered.
    kind = REFLECTOR.registry.find(recipe.fast.reflection.kind)
    if recipe.fast.budget and kind.own_model and isinstance(reflector, LanguageModelReflector):
        parts.engine.world.from_main(lambda: _call(reflector))
        usage, reflector.usage = reflector.usage, Usage()
        spent.book("preflight", usage.spent)
    return spent


def _problems_of_each(task: Task) -> Iterator[list[Example]]:
    """The first training problems of every task of a run."""
    examples = task.examples("train")
    if not isinstance(task, Mixture):
        yield list(examples[: 1 + MORE])
        return
    names = [part.name for part in task.parts]
    found: dict[str, list[Example]] = {name: [] for name in names}
    for index in range(len(examples)):
        example = examples[index]
        mine = found[example.part]  # type: ignore[attr-defined]
        if len(mine) <= MORE:
            mine.append(example)
        if all(len(each) > MORE for each in found.values()):
            break
    yield from (each for each in found.values() if each)


def _grade(recipe: Recipe, parts: Parts, problems: list[Example], number: int, spent: Ledger) -> None:
    faulty = []
    for batch in (problems[:1], problems[1:]):
        if not batch:
            continue
        rollouts, timing = parts.player.play(
            [(example, Context(dict(parts.seed_texts))) for example in batch],
            recipe.sampling.training(),
            policy_step=0,
            seed=derive_seed(recipe.seed, "preflight", number, len(batch)),
            strict=False,
        )
        spent.book_rollouts("preflight", rollouts, timing.total, prices=recipe.prices)
        faulty += [rollout for rollout in rollouts if is_faulty(rollout)]
        if not faulty:
            return
    if len(faulty) == len(problems):
        raise GradingError(
            f"grading failed on all of the {len(faulty)} answers that were tried before step 1; {first_error(faulty)}"
        )


def _call(reflector: LanguageModelReflector) -> None:
    """One short question; only a failure that every other request would share counts."""
    try:
        reflector.ask([{"role": "user", "content": "Answer with the one word: ready"}], seed=0)
    except ReflectionFailed as failure:
        if failure.permanent:
            raise ModelError(str(failure)) from None
