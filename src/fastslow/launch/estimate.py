"""What a recipe would spend, and what it lacks, before anything is spent: for `fastslow check`.

Rollouts are counted from the recipe: a search may end early, a step may reuse rollouts, and gepa finishes the generation in
which its budget runs out. Prompts are measured on the first training problems under the seed text, one turn each; evolved
contexts make them longer. Completions count with the most tokens that they may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from statistics import mean

from fastslow.base.errors import FastSlowError
from fastslow.engine.kind import Finding, Rollouts, find_engine
from fastslow.launch.assembly import CHECKED_EXAMPLES, check_lengths, choose_seed_texts
from fastslow.models.chat import ChatFormat
from fastslow.models.tokenizer import describe
from fastslow.recipe import Recipe
from fastslow.recipe.parts import OPTIMIZER, REFLECTOR
from fastslow.runs.trackers import check_trackers
from fastslow.slow.rescue.accounts import PROBES
from fastslow.tasks import Task
from fastslow.tasks.registry import build_task
from fastslow.tasks.scripted import scripted_rollout


def count_rollouts(recipe: Recipe) -> Rollouts:
    slow, fast, evaluation = recipe.slow, recipe.fast, recipe.evaluation
    contexts = 1 if recipe.method == "rl" else 2
    cycles = 0 if recipe.method == "rl" else math.ceil(slow.steps / fast.cycle)
    anchors = min(fast.anchors, fast.cycle * slow.problems) * fast.samples
    rescored = 0
    reads = getattr(OPTIMIZER.registry.find(fast.optimizer.name), "reads_rollouts", False)
    if cycles and fast.rescore == "all" and not reads:
        rescored = anchors * (1 + (cycles - 1) * fast.population)  # the first cycle has the seed text only
    played = 0 if recipe.method == "gepa" else slow.steps * slow.problems * slow.group
    searched = cycles * fast.budget + rescored
    share = 1.0
    if recipe.rollouts is not None:  # the run ends in the step in which they are spent
        share = min(1.0, recipe.rollouts / max(1, played + searched))
        played, searched = math.ceil(played * share), math.ceil(searched * share)
    often = 1 + math.ceil(share * slow.steps / evaluation.every) if evaluation.every else 0
    measured = often * contexts * evaluation.problems * (evaluation.k + evaluation.divergence)
    return Rollouts(played, searched, measured)


def check(recipe: Recipe) -> Iterator[Finding]:
    """Problems, rollouts, tokens, memory or cost, and what is missing."""
    yield from _missing("trackers", lambda: check_trackers(recipe.output.report_to))
    if recipe.method != "rl":
        yield from _missing("optimizer", lambda: OPTIMIZER.registry.find(recipe.fast.optimizer.name))
        reflector = REFLECTOR.registry.find(recipe.fast.reflection.kind)
        yield from _missing("reflection", lambda: reflector.require(recipe))
    for part in recipe.slow.rescue.options.get("models", ()) if recipe.method != "gepa" else ():
        require = getattr(REFLECTOR.registry.find(part.name), "require_model", None)
        if require is not None:
            yield from _missing("slow.rescue", partial(require, part))
    rollouts = count_rollouts(recipe)
    try:
        task = build_task(recipe)
        prompt = _prompt_tokens(recipe, task)
    except FastSlowError as error:
        yield Finding("task and model", str(error), missing=True)
        return
    trained, held_out = len(task.examples("train")), len(task.examples("validation"))
    yield Finding("problems", f"{trained:,} to train on, {held_out:,} for validation")
    yield Finding(
        "rollouts",
        f"about {rollouts.total:,}: {rollouts.slow:,} slow, {rollouts.fast:,} fast, {rollouts.evaluation:,} evaluation",
    )
    if recipe.method != "gepa" and recipe.slow.rescue.name != "none":
        asked = recipe.slow.rescue.options
        helpers = len(asked.get("models", ())) + asked.get("retry", True)
        most = recipe.slow.problems * (helpers * asked["attempts"] + PROBES)
        yield Finding("rescue", f"up to {most:,} more rollouts a step, if no group has a success")
    completion = recipe.sampling.max_tokens
    longest = f", and up to {recipe.fast.max_tokens:,} more under evolved contexts" if recipe.method != "rl" else ""
    yield Finding(
        "tokens",
        f"prompts of {prompt:.0f} on average under the seed text{longest}; completions of at most {completion:,}; together "
        f"{rollouts.total * (prompt + completion):,.0f} with the seed text and completions of full length",
    )
    engine = find_engine(recipe)
    yield from _missing("packages", lambda: engine.require(recipe))
    yield from engine.estimate(recipe, rollouts, prompt, lambda most: _prompt_tokens(recipe, task, most))


def _missing(what: str, needed: Callable[[], object]) -> Iterator[Finding]:
    try:
        needed()
    except FastSlowError as error:
        yield Finding(what, str(error), missing=True)


def _prompt_tokens(recipe: Recipe, task: Task, most: int | None = None) -> float:
    """Mean length of the first prompts; raises if one does not fit the model, or the `most` tokens that its servers take."""
    model = describe(recipe.model.name, trust_remote_code=recipe.model.trust_remote_code)
    chat = ChatFormat(model.tokenizer, recipe.sampling.chat_template_kwargs)
    texts = choose_seed_texts(task, recipe.fast.seed_text)
    check_lengths(task, chat, texts, recipe.sampling.max_tokens, most or model.max_length)
    asked = [scripted_rollout(task, example, texts=texts).asks for example in task.examples("train")[:CHECKED_EXAMPLES]]
    lengths = [len(chat.prompt(asks[0].messages, asks[0].context(texts))) for asks in asked if asks]
    return mean(lengths) if lengths else 0.0
