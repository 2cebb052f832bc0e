"""What a friend would say about a recipe that can run: where it measures too little, or cannot learn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fastslow.base.intervals import interval
from fastslow.engine.kind import Finding
from fastslow.launch.schedule import Span, unspent
from fastslow.models.tokenizer import Described
from fastslow.recipe import Recipe
from fastslow.tasks import Task
from fastslow.tasks.stages import Stages

WIDE = 0.3
"""An interval of a score that is wider tells little apart."""
SMALL_GROUP = 4
WARM = 2
"""Updates of a run for each one of warm-up, below which it hardly learns."""
RARE = 0.1
"""A chance of success as many tasks begin with."""
CHECKED = 64
"""Expected answers that are compared with the limit."""


def advise(recipe: Recipe, task: Task, model: Described, counted: Mapping[str, Span]) -> Iterator[Finding]:
    of_data = _validation(recipe, task), _training(recipe, task), _anchors(recipe, task)
    of_course = unspent(recipe, counted), _updates(recipe, counted), _evaluation(counted)
    for said in (*of_data, _group(recipe, counted), *of_course, _answers(recipe, task, model)):
        if said:
            yield Finding("warning", said, warning=True)


def _validation(recipe: Recipe, task: Task) -> str:
    if not recipe.evaluation.every:
        return ""
    tasks = list(task.each.values()) if isinstance(task, Stages) else [task]
    held_out = min(len(each.examples("validation")) for each in tasks)
    used = min(recipe.evaluation.problems, held_out)
    if not used or (said := _uncertain(used)) == "":
        return ""
    more = "evaluation.problems" if used < held_out else "validation_path or holdout of a dataset"
    return f"a text measured on {_of(used, 'validation problem')} {said}: use more of them ({more}) to tell runs apart"


def _training(recipe: Recipe, task: Task) -> str:
    have, step = len(task.examples("train")), recipe.slow.problems
    if recipe.method == "gepa" or have >= step:
        return ""
    return (
        f"a step takes slow.problems={step} problems and there {'is' if have == 1 else 'are'} {have:,} to train on, so that "
        "every step repeats them; add problems, or lower slow.problems"
    )


def _anchors(recipe: Recipe, task: Task) -> str:
    fast = recipe.fast
    if recipe.method == "rl" or not fast.budget:
        return ""
    anchors = min(fast.anchors, fast.cycle * recipe.slow.problems, len(task.examples("train")))
    said = _uncertain(anchors)
    return (
        f"contexts are chosen by their scores on {_of(anchors, 'problem')}: one {said}; raise fast.anchors"
        if said
        else ""
    )


def _group(recipe: Recipe, counted: Mapping[str, Span]) -> str:
    slow, alike = recipe.slow, "the problem"
    size = slow.group
    if slow.baseline == "prompt" and recipe.method == "fst":
        size, alike = slow.group // recipe.fast.population, "the problem and the context"
    if size >= SMALL_GROUP or not counted["slow"].most or recipe.method == "distill":
        return ""
    equal = RARE**size + (1 - RARE) ** size
    return (
        f"{size} rollouts share {alike} and are compared with each other: where one answer in {1 / RARE:.0f} is right, "
        f"{equal:.0%} of such groups have equal rewards and teach nothing; raise slow.group"
    )


def _updates(recipe: Recipe, counted: Mapping[str, Span]) -> str:
    slow = recipe.slow
    updates = counted["slow"].most // (slow.problems * slow.group)
    if not counted["slow"].most or updates >= WARM * slow.warmup_steps:
        return ""
    return (
        f"the weights will hardly move: there are at most {_of(updates, 'update')}, and the first {slow.warmup_steps} are "
        "warm-up; lower slow.warmup_steps or slow.problems, or play more rollouts"
    )


def _evaluation(counted: Mapping[str, Span]) -> str:
    evaluation = counted["evaluation"]
    training = [span for kind, span in counted.items() if kind != "evaluation"]
    least, most = sum(span.least for span in training), sum(span.most for span in training)
    if evaluation.least <= least or evaluation.most <= most:
        return ""
    return (
        f"evaluation plays more rollouts ({evaluation}) than training, beside its budget; raise evaluation.every, or lower "
        "evaluation.problems or evaluation.k"
    )


def _answers(recipe: Recipe, task: Task, model: Described) -> str:
    column = getattr(getattr(task, "options", None), "answer", None)
    limit, long = recipe.sampling.max_tokens, []
    for example in task.examples("train")[:CHECKED] if column else ():
        answer = example.data.get(str(column)) if isinstance(example.data, Mapping) else None
        if isinstance(answer, str):
            long.append(len(model.tokenizer(answer, add_special_tokens=False)["input_ids"]))
    over = [length for length in long if length > limit]
    if not over:
        return ""
    return (
        f"{_of(len(over), 'expected answer')} of the first {len(long)} {'has' if len(over) == 1 else 'have'} up to "
        f"{max(over):,} tokens, more than sampling.max_tokens={limit}: such answers are truncated; raise it"
    )


def _uncertain(problems: int) -> str:
    low, high = interval(0.5, problems)
    return f"with score 0.5 may as well have {low:.2f} or {high:.2f} (95%)" if high - low > WIDE else ""


def _of(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
