"""A task with a harness: what one rollout does, whose a failure is, and the task of a recipe."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness_tasks import CALCULATES, SEED, Copies, Products
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.world import wait_for
from fastslow.launch.identity import identity
from fastslow.models.chat import ChatFormat
from fastslow.recipe import build_recipe
from fastslow.records import Context, Example, Feedback, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.sandbox.harness import Refused
from fastslow.tasks.base import Ask
from fastslow.tasks.harness import HARNESS, Limits, read_messages
from fastslow.tasks.registry import build_task


def played(code: str, task: Products | None = None, count: int = 1, max_tokens: int = 8) -> list[Rollout]:
    task, engine = task or Products(), Copies(1.0)
    player = Player(task, engine, ChatFormat(engine.tokenizer))
    context = Context({"system": "Write the product.", HARNESS: code})
    pairs = [(example, context) for example in task.examples("train")[:count]]
    return player.play(pairs, Sampling(max_tokens=max_tokens), policy_step=0, seed=3)[0]


def test_every_ask_is_a_turn_under_its_prompt() -> None:
    asks = '    ask("one two three")\n    return ask([{"role": "user", "content": "a b c"}])\n'
    (rollout,) = played(f"def solve(problem, ask, tools):\n{asks}")
    assert [turn.question for turn in rollout.turns] == ["one two three", "a b c"]
    assert [turn.component for turn in rollout.turns] == ["system", "system"]
    first = rollout.turns[0]
    assert len(first.completion.ids) == len(first.completion.logprobs) == 4
    assert rollout.completion_tokens == 8


def test_a_better_harness_solves_what_the_policy_cannot() -> None:
    assert [rollout.score for rollout in played(SEED, count=4)] == [0.0] * 4
    rollouts = played(CALCULATES, count=4)
    assert sum(rollout.score for rollout in rollouts) >= 3
    words = rollouts[0].feedback.by_component[HARNESS]
    assert words.splitlines()[:1] == ["Right."]
    assert "1. ask: 'what is 100 * 31' → '100 * 31'\n2. tools.calculate('100 * 31') → 3100\n" in words
    assert words.endswith("It returned: '3100'\nIn all: 1 answers with 4 tokens, 1 calls of tools.")


def test_a_failure_of_the_code_is_the_codes() -> None:
    code = 'def solve(problem, ask, tools):\n    print("seen")\n    number = ask("a b c")\n    return int(number)\n'
    (rollout,) = played(code)
    assert (rollout.score, dict(rollout.faults), rollout.error) == (0.0, {"harness_crashed": 1}, "")
    assert rollout.feedback.by_component["system"] == ""
    words = rollout.feedback.by_component[HARNESS]
    assert words.startswith("The code failed: line 4 (`return int(number)`): ValueError: invalid literal for int()")
    assert "1. ask: 'a b c' → 'a b c'" in words
    assert "It printed: seen" in words
    assert len(rollout.turns) == 1  # which is trained on


def test_one_failure_costs_one_rollout() -> None:
    code = (
        "def solve(problem, ask, tools):\n"
        "    if problem['question'].startswith('what is 101'):\n        while True: pass\n"
        "    if problem['question'].startswith('what is 102'):\n        return [bytes(2**30)]\n"
        "    return tools.calculate(ask(problem['question']))\n"
    )
    task = Products()
    task.limits = Limits(seconds=1)
    rollouts = played(code, task, count=4)
    assert [dict(rollout.faults) for rollout in rollouts] == [{}, {"harness_hung": 1}, {"harness_memory": 1}, {}]
    assert [rollout.score for rollout in rollouts] == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("body", "words", "fault"),
    [
        ("    while True: ask('x', max_tokens=1)", "no more than 3 answers are given for one problem", "harness_limited"),
        ("    while True: tools.calculate('2 * 2')", "no more than 4 calls of tools", "harness_limited"),
        ("    ask('a b c')\n    ask('d e f')", "no more than 4 tokens are given", "harness_limited"),
        ("    ask('x', component='judge')", "no component 'judge' to ask; expected one of system", "harness_crashed"),
        ("    tools.calculate('2 + 2')", "ValueError: ValueError: '+' is no sign", "harness_crashed"),
        ("    return tools.other(1)", "AttributeError", "harness_crashed"),
        ("    import fastslow", "ModuleNotFoundError", "harness_crashed"),
        ("    return {1, 2}", "not JSON serializable", "harness_crashed"),
    ],
)  # fmt: skip
def test_what_it_may_not_is_refused_in_words(body: str, words: str, fault: str) -> None:
    task = Products()
    task.limits = Limits(asks=3, calls=4, tokens=4)
    (rollout,) = played(f"def solve(problem, ask, tools):\n{body}\n", task)
    assert words in rollout.feedback.text
    assert dict(rollout.faults) == {fault: 1}


def test_an_ask_has_the_tokens_that_are_left() -> None:
    asked: list[Ask] = []

    async def ask(wanted: Ask) -> str:
        asked.append(wanted)
        return "x"

    task = Products()
    task.limits = Limits(tokens=20)
    code = "def solve(problem, ask, tools):\n    ask('a', max_tokens=5, stop='b')\n    return ask('c')\n"
    wait_for(task.rollout(task.examples("train")[0], {"system": "s", HARNESS: code}, ask))
    assert [(each.limit, each.stop) for each in asked] == [(5, ("b",)), (20, ())]


def test_data_that_is_no_text_is_graded_as_json() -> None:
    answers: list[str] = []

    class Noting(Products):
        async def grade(self, example: Example, answer: str) -> Feedback:  # type: ignore[override]
            await asyncio.sleep(0)
            answers.append(answer)
            return Feedback(0.5, "half", by_component={HARNESS: "for the code"})

    (rollout,) = played("def solve(problem, ask, tools):\n    return {'a': [1, None]}\n", Noting())
    assert json.loads(answers[0]) == {"a": [1, None]}
    assert rollout.feedback.by_component[HARNESS].startswith("for the code\n")


def test_randomness_of_the_code_is_repeatable() -> None:
    code = "import random\ndef solve(problem, ask, tools):\n    return f'{random.random()} {random.randint(1, 99)}'\n"
    once, again = (played(code, count=2) for _ in range(2))
    assert [each.feedback for each in once] == [each.feedback for each in again]
    assert once[0].feedback != once[1].feedback


def test_an_awaited_tool_and_one_that_breaks() -> None:
    class Other(Products):
        def tools(self, example: Example) -> Mapping[str, Any]:
            async def later(number: int) -> dict[str, Any]:
                await asyncio.sleep(0)
                return {"twice": 2 * number, "set": None}

            def odd() -> object:
                return object

            return {"later": later, "odd": odd}

    code = "def solve(problem, ask, tools):\n    return [tools.later(number=4), tools.odd()]\n"
    (rollout,) = played(code, Other())
    assert "tools.later(number=4) → {'twice': 8, 'set': None}" in rollout.feedback.by_component[HARNESS]
    assert "tools.odd() → \"<class 'object'>\"" in rollout.feedback.by_component[HARNESS]


ROLES = st.lists(st.sampled_from(["system", "user", "assistant", "tool"]), max_size=5)


@given(ROLES)
@settings(max_examples=200, deadline=None)
def test_messages_take_turns(roles: list[str]) -> None:
    messages = [{"role": role, "content": "x"} for role in roles]
    turns = "".join(role[0] for role in roles)
    if re.fullmatch("s?(ua)*u", turns):
        assert read_messages(messages) == messages
    else:
        with pytest.raises(Refused):
            read_messages(messages)


# The task of a recipe ---------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [{"question": f"what is {n} * 7", "answer": str(n * 7), "hint": f"hint {n}"} for n in range(30)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "code.py").write_text(CALCULATES)
    (tmp_path / "kit.py").write_text("def calculate(text):\n    a, _, b = text.split()\n    return int(a) * int(b)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build(**options: Any) -> Any:
    task = {"name": "harness", "path": "rows.jsonl", "code": "code.py", "tools": ["kit.py:calculate"], **options}
    return build_task(build_recipe({"model": "none", "task": task}))


def test_a_recipe_names_rows_code_and_tools(files: Path) -> None:
    task = build(shows=["hint"], prompts={"judge": "Judge."}, asks=3)
    assert task.seed_texts == {"system": "Answer the question.", "judge": "Judge.", HARNESS: CALCULATES}
    example = task.examples("train")[0]
    assert set(task.problem(example)) == {"question", "hint"}  # never the answer

    async def ask(asked: Ask) -> str:
        return " ".join(asked.messages[0]["content"].split()[-3:])

    feedback = wait_for(task.rollout(example, task.seed_texts, ask))
    assert feedback.score == 1.0
    about = task.components[-1].about
    assert "- tools.calculate(text): no description" in about
    assert "most 3 answers;" in about


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"code": "missing.py"}, "code='missing.py' cannot be read"),
        ({"tools": ["kit.py:nothing"]}, "has no 'nothing'"),
        ({"shows": ["answer"]}, "would give the code the answer column 'answer'"),
        ({"shows": ["other"]}, "row 1 has no column 'other', which shows names"),
        ({"system": "x"}, "system belongs to the task dataset"),
        ({"signature": "solve("}, "is not NAME\\(PARAMETERS\\)"),
        ({"signature": "solve(question)"}, "has \\['question'\\]; code can be given problem, ask, tools"),
    ],
)
def test_mistakes_in_a_recipe_are_named(files: Path, options: dict[str, Any], error: str) -> None:
    with pytest.raises((RecipeError, TaskError), match=error):
        build(**options)


def test_a_grader_in_threads(files: Path) -> None:
    (files / "grading.py").write_text(
        "def grade(answer, row):\n    return (float(answer == row['answer']), 'graded')\n"
    )
    task = build(grader="grading.py:grade", grader_threads=True)

    async def ask(asked: Ask) -> str:
        return " ".join(asked.messages[0]["content"].split()[-3:])

    feedback = wait_for(task.rollout(task.examples("train")[0], task.seed_texts, ask))
    assert (feedback.score, feedback.text) == (1.0, "graded")
    assert replace(feedback, by_component={}).faults == {}


def test_a_task_is_the_same_before_and_after_it_was_played() -> None:
    task = Products()
    before = identity(task)
    played(CALCULATES, task)
    assert identity(task) == before
