"""`digest` where the score says little: lines that pay only together, seed lines that harm, and examples."""

from __future__ import annotations

import importlib
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from cycle_helpers import one_cycle, pool_of

from fastslow.fast.digest.answers import TRIES
from fastslow.fast.optimizers.base import Cycle
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Lessons
from fastslow.recipe import FastRecipe
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn
from fastslow.tasks.families.formats.fields import FIELDS
from fastslow.tasks.families.formats.task import Formats, FormatsOptions

simulated = importlib.import_module("benchmarks.simulated_conventions")


def share(cycles: int = 2, seed: int = 3, **dials: Any) -> float:
    """Of what the oracle's text gains, the part that the best text has after some cycles."""
    world = simulated.ConventionWorld(simulated.ConventionDials(**dials), seed)
    policy, pool = simulated.ConventionPolicy(world), Pool.from_texts({"system": world.seed_text})
    for cycle in range(cycles):
        pool = run(policy.play, pool, [world.problem("train", 96 * cycle + index) for index in range(96)], cycle).pool
    seed_reward, oracle = world.reward(world.seed_text), world.reward(world.oracle_text)
    return float((world.reward(pool.best.context.texts["system"]) - seed_reward) / (oracle - seed_reward))


def run(play: Any, pool: Pool, anchors: Sequence[Example], cycle: int = 0, **settings: Any) -> Cycle:
    optimizer = {"name": "digest", "examples": settings.pop("examples", True)}
    recipe = FastRecipe.model_validate({"optimizer": optimizer, "population": 4, "anchors": 96, "max_tokens": 400})
    named = {"cycle": cycle, "policy_step": cycle, "seed": cycle, "budget": 170} | settings
    return one_cycle(recipe, Lessons(), play, pool, anchors, count_tokens=lambda text: len(text.split()), **named)


@pytest.mark.parametrize(
    "dials",
    [
        {"together": 3, "base": 0.0, "follow": 0.7},
        {"together": 2, "fixed": 1, "follow": 0.5},
        {"numbers": 1},
        {"praise": 1, "base": 0.3},
        {"bad_line": 0.4},
        {"expected": 1},
        {"breaking": 1, "together": 2, "base": 0.05, "follow": 0.7},
    ],
    ids=["silent", "together", "numbers", "praise", "bad line", "expected", "breaking"],
)
def test_what_scores_hide_is_found_in_the_words(dials: dict[str, Any]) -> None:
    assert share(**dials) > 0.8


def test_while_nothing_scores_people_are_told_how_far_the_words_have_come() -> None:
    world = simulated.ConventionWorld(simulated.ConventionDials(together=3, base=0.0, follow=0.0), 0)
    said: list[str] = []
    anchors = [world.problem("train", index) for index in range(48)]
    policy = simulated.ConventionPolicy(world)
    run(policy.play, pool_of(world.seed_text), anchors, report=said.append)
    assert any("every reward is 0; 0 of" in text for text in said)


class Imitator:
    """Answers rightly by chance, always where the text shows a right answer, and never because it is told a rule."""

    def __init__(self) -> None:
        self.chance, self.given_away = random.Random(0), 0

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        return [self._rollout(*pair) for pair in pairs]

    def _rollout(self, example: Example, context: Context) -> Rollout:
        text, question = context.texts["system"], f"How is the {example.id} packed?"
        shown = "Example of a right answer" in text
        self.given_away += question in text
        right = self.chance.random() < (0.9 if shown else 0.15)
        turn = Turn("system", question, (), Completion((), ()), "in straw and paper" if right else "somehow or other")
        return Rollout(example, context, 0, (turn,), Feedback(float(right), "" if right else "Pack it softly."))


class Hesitant(Imitator):
    """Is never right, so that wrong answers would be shown."""

    def _rollout(self, example: Example, context: Context) -> Rollout:
        return replace(super()._rollout(example, context), feedback=Feedback(0.0, "Pack it softly."))


def test_an_example_enters_where_a_rule_is_not_followed_and_its_own_problem_does_not_count() -> None:
    policy, anchors = Imitator(), [Example(f"vase{index}", {}) for index in range(24)]
    pool = pool_of("Say how.")
    for cycle in range(2):
        found = run(policy.play, pool, anchors, cycle)
        pool = found.pool
    assert "Example of a right answer. The question:\nHow is the vase" in pool.best.context.texts["system"]
    rows = pool.members[0].notes["digest"]["transcript"]["rows"]
    assert policy.given_away == 24 + 2 * 170 - len(rows) > 0


@pytest.mark.parametrize("policy", [Imitator(), Hesitant()])
def test_without_examples_no_text_holds_anything_of_a_row(policy: Imitator) -> None:
    texts: list[str] = []

    def play(pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        texts.extend(context.texts["system"] for _, context in pairs)
        return policy.play(pairs, purpose, seed)

    pool = pool_of("Say how.")
    for cycle in range(2):
        pool = run(play, pool, [Example(f"vase{index}", {}) for index in range(24)], cycle, examples=False).pool
    assert any("Pack it softly." in text for text in texts)
    assert not any("vase" in text or "somehow" in text for text in texts)


class Corrector(Imitator):
    """Keeps none of three rules that it is told, but mends one at a time where it is shown its answer and what is wrong."""

    RULES: ClassVar = {"in": "Begin with the way in.", "straw": "Name the straw.", "paper": "Name the paper."}

    def __init__(self) -> None:
        super().__init__()
        self.retried = 0

    def _rollout(self, example: Example, context: Context) -> Rollout:
        text, question = context.texts["system"], f"How is the {example.id} packed?"
        earlier = text.partition("An earlier answer to the question below was:\n")[2].partition("\n")[0]
        self.retried += bool(earlier)
        kept = [word for word in self.RULES if word in earlier.split()]
        if "Example of a right answer" in text and self.chance.random() < 0.9:
            kept = list(self.RULES)
        elif earlier and self.chance.random() < 0.5:
            kept += [word for word in self.RULES if word not in kept][:1]
        wrong = [rule for word, rule in self.RULES.items() if word not in kept]
        turn = Turn("system", question, (), Completion((), ()), " ".join(kept) or "somehow")
        return Rollout(example, context, 0, (turn,), Feedback(float(not wrong), "\n".join(wrong)))


def test_while_nothing_is_right_near_answers_are_tried_again_until_one_can_be_shown() -> None:
    policy, anchors = Corrector(), [Example(f"vase{index}", {}) for index in range(96)]
    found = run(policy.play, pool_of("Say how."), anchors)
    assert "The answer:\nin straw paper" in found.pool.best.context.texts["system"]
    assert "An earlier answer" not in "".join(member.context.texts["system"] for member in found.pool.members)
    assert 0 < policy.retried <= 170 / 2


class Lengthy(Corrector):
    """Has more to mend than one cycle's second tries can."""

    RULES: ClassVar = {f"part{number}": f"Name part{number}." for number in range(12)}

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[int] = []
        self.beside: set[bool] = set()

    def _rollout(self, example: Example, context: Context) -> Rollout:
        text, _, earlier = context.texts["system"].partition("An earlier answer to the question below was:\n")
        self.beside.add("Example of a wrong answer" in text if earlier else False)
        if earlier:
            self.shown.append(len(re.findall(r"part\d+", earlier.partition("\n")[0])))
        return super()._rollout(example, context)


@pytest.mark.parametrize("known", [True, False])
def test_the_nearest_answers_are_tried_again_in_the_next_cycle(known: bool) -> None:
    policy, pool, begun = Lengthy(), pool_of("Say how."), list[int]()
    every = [Example(f"vase{index}", {}) for index in range(96)]
    for cycle in range(3):
        before = len(policy.shown)
        anchors = every[32 * cycle : 32 * cycle + 32]
        found = run(policy.play, pool, anchors, cycle, budget=64, known=every if known else [])
        pool = Pool.from_dict(json.loads(json.dumps(found.pool.to_dict())))
        begun.append(policy.shown[before])
    assert policy.beside == {False}  # another problem's wrong answer is not shown beside the one to correct
    assert begun[0] == 0
    assert (min(begun[1:]) > 0) is known


class Stubborn(Corrector):
    """Repeats an answer that it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: Counter[tuple[str, str]] = Counter()

    def _rollout(self, example: Example, context: Context) -> Rollout:
        earlier = (
            context.texts["system"].partition("An earlier answer to the question below was:\n")[2].partition("\n")[0]
        )
        if not earlier:
            word = self.chance.choice(["somehow", "anyhow", "nohow"])
            turn = Turn("system", f"How is the {example.id} packed?", (), Completion((), ()), word)
            return Rollout(example, context, 0, (turn,), Feedback(0.0, "\n".join(self.RULES.values())))
        self.shown[example.id, earlier] += 1
        rollout = super()._rollout(example, context)
        return replace(
            rollout,
            turns=(replace(rollout.turns[0], answer=earlier),),
            feedback=Feedback(0.0, "\n".join(self.RULES.values())),
        )


def test_an_answer_that_comes_back_as_it_was_is_not_tried_in_a_second_batch() -> None:
    policy, anchors = Stubborn(), [Example(f"vase{index}", {}) for index in range(96)]
    run(policy.play, pool_of("Say how."), anchors)
    assert len(policy.shown) > 2
    assert max(policy.shown.values()) <= TRIES


class Copier(Corrector):
    """Does what it is told in two of five answers, and under an example that example's answer, whatever it is asked."""

    def _rollout(self, example: Example, context: Context) -> Rollout:
        text, item = context.texts["system"], int(example.id[4:]) % 4
        shown = re.findall(r"(?m)^The answer:\n(\w+)$", text)
        colours = ["red", "blue", "jade", "pink"]
        rules = [f"Item {number} goes to {colour}." for number, colour in enumerate(colours)]
        told = rules[item] in text and self.chance.random() < 0.4
        answer = self.chance.choice(shown or [*colours, *"abcdefgh"])
        answer = colours[item] if told and not shown else answer
        right = answer == colours[item]
        turn = Turn("system", f"Where does item {item} of {example.id} go?", (), Completion((), ()), answer)
        return Rollout(example, context, 0, (turn,), Feedback(float(right), "" if right else rules[item]))


def test_texts_with_right_examples_are_compared_with_one_without_and_those_that_are_copied_do_not_stay() -> None:
    policy, pool, batches = Copier(), pool_of("Route it."), list[set[str]]()

    def play(pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        if purpose == "fast-score":
            batches.append({context.texts["system"] for _, context in pairs})
        return policy.play(pairs, purpose, seed)

    for cycle in range(3):
        anchors = [Example(f"item{cycle * 96 + index}", {}) for index in range(96)]
        pool = run(play, pool, anchors, cycle, budget=120).pool
    text = pool.best.context.texts["system"]
    assert text.count(" goes to ") == 4
    assert "Example of" not in text
    shown = [batch for batch in batches if any("Example of a right" in text for text in batch)]
    assert shown
    assert all(any(" goes to " in text and "Example of" not in text for text in batch) for batch in shown)


class Climber(Corrector):
    """Hears of the first fault alone, of eight that stand one behind the other."""

    RULES: ClassVar = {
        word: f"Name the {word}, as in '{word[::-1]}o'."
        for word in ("cargo", "lodge", "fjord", "quill", "ember", "grove", "comet", "delta")
    }

    def _rollout(self, example: Example, context: Context) -> Rollout:
        rollout = super()._rollout(example, context)
        first = rollout.feedback.text.partition("\n")[0]
        return replace(rollout, feedback=replace(rollout.feedback, text=first))


def test_an_answer_is_mended_fault_by_fault_by_a_grader_who_names_the_first() -> None:
    policy, anchors = Climber(), [Example(f"vase{index}", {}) for index in range(96)]
    found = run(policy.play, pool_of("Say how."), anchors)
    assert f"The answer:\n{' '.join(policy.RULES)}" in found.pool.best.context.texts["system"]


class Apprentice(Imitator):
    """Must keep three of eight rules. It keeps one that it is told in a quarter of its answers, and mostly where its text
    shows it kept. Only the first that is broken is named."""

    ITEMS = ("cargo", "lodge", "fjord", "quill", "ember", "grove", "comet", "delta")
    MARKS: ClassVar = {item: f"{item[::-1]}o" for item in ITEMS}

    def _rollout(self, example: Example, context: Context) -> Rollout:
        kept = {
            item: self.chance.random() < self.chances(context.texts["system"])[item] for item in example.data["items"]
        }
        answer = " ".join(f"{item}={self.MARKS[item] if right else 'plain'}" for item, right in kept.items())
        broken = [
            f"Every {item} is marked with the word {self.MARKS[item]}." for item, right in kept.items() if not right
        ]
        turn = Turn("system", f"List {example.id}: {', '.join(kept)}", (), Completion((), ()), answer)
        return Rollout(example, context, 0, (turn,), Feedback(float(not broken), "".join(broken[:1])))

    def chances(self, text: str) -> dict[str, float]:
        told = {item: f"Every {item} is marked with the word {mark}." in text for item, mark in self.MARKS.items()}
        return {item: told[item] * (0.8 if f"{item}={mark}" in text else 0.25) for item, mark in self.MARKS.items()}


def test_rules_that_are_seldom_followed_are_shown_by_answers_to_several_problems() -> None:
    policy, pool, draw = Apprentice(), pool_of("Mark the items."), random.Random(0)
    items = list(policy.MARKS)
    for cycle in range(4):
        lists = [sorted(draw.sample(items, 3), key=items.index) for _ in range(96)]
        anchors = [Example(f"{cycle}-{place}", {"items": each}) for place, each in enumerate(lists)]
        pool = run(policy.play, pool, anchors, cycle, budget=100).pool
    text = pool.best.context.texts["system"]
    assert sorted(policy.chances(text).values())[2] == 0.8
    assert "Example of a wrong answer" not in text


class Kinds(Imitator):
    """Problems of five kinds, each with a word of its own that only its rule tells. It is right in one answer of eight, and
    mostly where the text shows a right answer of that kind."""

    WORDS: ClassVar = {"choose": "keep", "sort": "rank", "count": "muster", "add": "heap", "cut": "crop"}

    def _rollout(self, example: Example, context: Context) -> Rollout:
        kind, text = example.data["kind"], context.texts["system"]
        word = self.WORDS[kind]
        right = self.chance.random() < (0.9 if f"\n{word} all of the rows" in text else 0.12)
        turn = Turn(
            "system", f"{kind} {example.id}", (), Completion((), ()), f"{word if right else 'do'} all of the rows"
        )
        return Rollout(example, context, 0, (turn,), Feedback(float(right), "" if right else f"To {kind} is '{word}'."))


def test_examples_that_show_what_no_other_does_come_first() -> None:
    policy, pool = Kinds(), pool_of("Answer.")
    for cycle in range(3):
        anchors = [Example(f"{kind}{cycle}-{place}", {"kind": kind}) for place in range(8) for kind in policy.WORDS]
        pool = run(policy.play, pool, anchors, cycle, budget=70).pool
    text = pool.best.context.texts["system"]
    assert [text.count(f"\n{word} all of the rows") for word in policy.WORDS.values()] == [1] * len(policy.WORDS)


def test_while_only_wrong_answers_can_be_shown_texts_that_show_one_are_compared_with_one_that_does_not() -> None:
    task = Formats(FormatsOptions(conventions=8, fields=4, book=3, feedback="both", graded=False))
    clerk, shown = Clerk(task, 0.0), list[set[bool]]()

    def play(pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        if purpose == "fast-score":
            shown.append({"Example of a wrong answer" in context.texts["system"] for _, context in pairs})
        return clerk.play(pairs, purpose, seed)

    run(play, pool_of(task.seed_text), task.examples("train")[:96])
    first = shown.index({True, False})
    assert first < len(shown) - 2
    assert all(each == {True, False} for each in shown[first + 1 :])


class Writers(Corrector):
    """Its second component is graded only once an answer has been tried again."""

    def _rollout(self, example: Example, context: Context) -> Rollout:
        rollout = super()._rollout(example, context)
        named = {"editor": "Edit it." if self.retried else ""}
        turns = (*rollout.turns, replace(rollout.turns[0], component="editor"))
        return replace(rollout, turns=turns, feedback=replace(rollout.feedback, by_component=named))


def test_a_component_that_is_blamed_for_the_first_time_by_a_second_try_is_no_surprise() -> None:
    policy, anchors = Writers(), [Example(f"vase{index}", {}) for index in range(96)]
    found = run(policy.play, Pool.from_texts({"system": "Say how.", "editor": "Edit."}), anchors)
    assert policy.retried
    assert {"system", "editor"} == set(found.pool.best.context.texts)


def test_answers_that_the_grader_s_values_mend_are_copied_and_shown() -> None:
    task = Formats(FormatsOptions(conventions=8, fields=4, book=3, feedback="both", graded=False))
    clerk = Clerk(task, 0.02, copies=True)
    text = run(clerk.play, pool_of(task.seed_text), task.examples("train")[:96]).pool.best.context.texts["system"]
    assert "Example of a right answer" in text
    assert "The right answer to the question below" not in text


class Clerk:
    """Writes records of the family `formats`. It keeps a convention seldom, also where the text says it, and mostly where the
    text shows a right record."""

    def __init__(self, task: Formats, follow: float, copies: bool = False) -> None:
        self.task, self.follow, self.copies, self.chance = task, follow, copies, random.Random(0)

    def play(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        return [self._rollout(*pair) for pair in pairs]

    def _rollout(self, example: Example, context: Context) -> Rollout:
        text, lines = context.texts["system"], []
        shown = "Example of a right" in text
        for name, value in example.data["values"].items():
            house = self.task.house[name]
            told = [aspect for aspect, rule in zip(house, self.task.rules(name), strict=True) if rule in text]
            chances = {aspect: 0.8 if shown else self.follow if aspect in told else 0.02 for aspect in house}
            kept = {aspect: way for aspect, way in house.items() if self.chance.random() < chances[aspect]}
            lines.append(f"{name}: {FIELDS[name].write(value, kept)}")
        question = self.task.messages(example)[0]["content"]
        if self.copies and "The right answer to the question below is:\n" in text:
            lines = text.partition("The right answer to the question below is:\n")[2].splitlines()[:-1]
        turn = Turn("system", question, (), Completion((), ()), "\n".join(lines))
        return Rollout(example, context, 0, (turn,), self.task.grade(example, turn.answer))


def test_where_none_is_right_the_text_has_every_rule_no_case_and_a_corrected_answer() -> None:
    task = Formats(FormatsOptions(conventions=8, fields=4, book=3, feedback="both", graded=False))
    found = run(Clerk(task, 0.1).play, pool_of(task.seed_text), task.examples("train")[:96])
    text = found.pool.best.context.texts["system"]
    assert {rule for name in task.house for rule in task.rules(name)} <= {*text.splitlines()}
    assert "Example of a wrong answer and its correction. The question:\n" in text
    assert not [
        line for line in text.splitlines() if line.startswith("expected '[")
    ]  # with their field in a correction
