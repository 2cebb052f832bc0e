"""What a recipe would spend, and what it lacks, before anything is spent: for `fastslow check`.

Rollouts are counted by walking through the run's schedule (schedule.py). Prompts are measured on the first training problems
under the seed text, one turn each. Completions and evolved texts count with the most tokens that they may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import mean

from fastslow.base.errors import FastSlowError
from fastslow.engine.kind import Finding, Rollouts, find_engine
from fastslow.launch.advice import advise
from fastslow.launch.assembly import CHECKED_EXAMPLES, check_lengths, choose_seed_texts, foreign_words
from fastslow.launch.schedule import NAMES, Span, at_most, count_rollouts, rescue_rollouts
from fastslow.models.chat import ChatFormat
from fastslow.models.tokenizer import describe
from fastslow.recipe import Recipe
from fastslow.recipe.parts import OPTIMIZER, REFLECTOR
from fastslow.runs.trackers import check_trackers
from fastslow.tasks import Task
from fastslow.tasks.registry import build_task
from fastslow.tasks.scripted import scripted_rollout
from fastslow.tasks.skills import library_of

NO_VALIDATION = (
    "there are no problems to evaluate on; give some (dataset: holdout or validation_path), or set evaluation.every=0"
)


def check(
    recipe: Recipe, *, play: bool = False, card: str | None = None, say: Callable[[str], None] = lambda text: None
) -> Iterator[Finding]:
    """Problems, rollouts, tokens, memory or cost, and what is missing; with `play`, the first steps are
    played (probe.py), and with the name or the GB of a `card`, whether it is large enough.
    `say` hears how far the probe is."""
    yield from _missing("trackers", lambda: check_trackers(recipe.output.report_to))
    if recipe.method != "rl":
        yield from _missing("optimizer", lambda: OPTIMIZER.registry.find(recipe.fast.optimizer.name))
        reflector = REFLECTOR.registry.find(recipe.fast.reflection.kind)
        yield from _missing("reflection", lambda: reflector.require(recipe))
    for part in recipe.slow.rescue.options.get("models", ()) if recipe.method != "gepa" else ():
        require = getattr(REFLECTOR.registry.find(part.name), "require_model", None)
        if require is not None:
            yield from _missing("slow.rescue", partial(require, part))
    try:
        task = build_task(recipe)
        prompt = prompt_tokens(recipe, task)
    except FastSlowError as error:
        yield Finding("task and model", str(error), missing=True)
        return
    trained, held_out = len(task.examples("train")), len(task.examples("validation"))
    yield Finding("problems", f"{trained:,} to train on, {held_out:,} for validation")
    if not held_out and recipe.evaluation.every:
        yield Finding("validation", NO_VALIDATION, missing=True)
    counted = count_rollouts(recipe, task)
    rollouts = at_most(counted)
    yield Finding("rollouts", _shown(counted))
    if helped := rescue_rollouts(recipe):
        yield Finding("rescue", f"up to {helped:,} rollouts a step with help, if no group has a success")
    model = describe(recipe.model.name, trust_remote_code=recipe.model.trust_remote_code)
    if said := foreign_words(recipe, task, ChatFormat(model.tokenizer, recipe.sampling.chat_template_kwargs)):
        yield Finding("warning", said, warning=True)
    yield from advise(recipe, task, model, counted)
    most = most_tokens(recipe, rollouts, prompt)
    longest = f", and up to {recipe.fast.max_tokens:,} more under evolved contexts" if recipe.method != "rl" else ""
    yield Finding(
        "tokens",
        f"prompts of {prompt:.0f} on average under the seed text{longest}; completions of at most "
        f"{recipe.sampling.max_tokens:,}; together at most {most:,}, if each rollout has one turn",
    )
    engine = find_engine(recipe)
    yield from _missing("packages", lambda: engine.require(recipe))
    needed = list(engine.estimate(recipe, rollouts, prompt, lambda most: prompt_tokens(recipe, task, most)))
    yield from needed
    if card is not None and engine.local:
        from fastslow.engine.local.cards import on_card

        yield from on_card(recipe, prompt, card)
    elif card is not None:
        yield Finding("card", "none is needed here: the server of the engine trains and samples")
    if play and not any(finding.missing for finding in needed):
        from fastslow.launch.probe import probe

        yield from probe(recipe, task, say).findings()


def most_tokens(recipe: Recipe, rollouts: Rollouts, prompt: float) -> int:
    """With completions and evolved texts of full length, one turn each."""
    evolved = 0 if recipe.method == "rl" else recipe.fast.max_tokens
    return round(rollouts.total * (prompt + evolved + recipe.sampling.max_tokens))


def _shown(counted: Mapping[str, Span]) -> str:
    shown = {name: span for name, span in counted.items() if span.most}
    total = Span(sum(span.least for span in shown.values()), sum(span.most for span in shown.values()))
    return f"{total}: " + ", ".join(f"{span} {NAMES.get(name, name)}" for name, span in shown.items())


def _missing(what: str, needed: Callable[[], object]) -> Iterator[Finding]:
    try:
        needed()
    except FastSlowError as error:
        yield Finding(what, str(error), missing=True)


def prompt_tokens(recipe: Recipe, task: Task, most: int | None = None) -> float:
    """Mean length of the first prompts; raises if one does not fit the model, or the `most` tokens that its servers take."""
    model = describe(recipe.model.name, trust_remote_code=recipe.model.trust_remote_code)
    chat = ChatFormat(model.tokenizer, recipe.sampling.chat_template_kwargs)
    texts: Mapping[str, str] = choose_seed_texts(task, recipe.fast.seed_text)
    if library := library_of(task, recipe.fast.skills):
        texts = library.over(texts)
    check_lengths(task, chat, texts, recipe.sampling.max_tokens, most or model.max_length)
    asked = [scripted_rollout(task, example, texts=texts).asks for example in task.examples("train")[:CHECKED_EXAMPLES]]
    lengths = [len(chat.prompt(asks[0].messages, asks[0].context(texts))) for asks in asked if asks]
    return mean(lengths) if lengths else 0.0
