"""Code as a component: reading, editing and checking proposals, and asking for them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import TaskError
from fastslow.fast.reflection import LanguageModelReflector, ReflectionFailed, Reply, Request
from fastslow.fast.reflection.base import KINDS, kind_of
from fastslow.fast.reflection.code import BROKEN, Code
from fastslow.records import Component
from fastslow.sandbox.signature import fault_of, read_signature

PARENT = "def solve(problem, ask):\n    text = ask(problem)\n    return text\n"
COMPONENT = Component("harness", "code", PARENT, signature="solve(problem, ask)", about="Nothing else.")


def words(text: str) -> int:
    return len(text.split())


def request(**changes: object) -> Request:
    given = {"component": "harness", "text": PARENT, "attempts": [], "proposer": "light", "max_tokens": 60}
    return Request(**{**given, "count_tokens": words, "seed": 1, "kind": kind_of(COMPONENT), **changes})  # type: ignore[arg-type]


class Says:
    """A chat that says these in turn."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.heard = list(answers), []  # type: ignore[var-annotated]

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        self.heard.append(messages)
        return Reply(self.answers.pop(0))


def edit(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (PARENT, None),
        ("def solve(problem, ask, more=1): ...", None),
        ("import re\nclass A: ...\ndef solve(problem: dict, ask) -> str: ...", None),
        ("def solve(problem:", "does not parse: line 1"),
        ("def other(problem, ask): ...", "defines no function solve(problem, ask)"),
        ("async def solve(problem, ask): ...", "defines no function"),
        ("if True:\n    def solve(problem, ask): ...", "defines no function"),
        ("def solve(problem): ...", "defines solve(problem), expected solve(problem, ask)"),
        ("def solve(ask, problem): ...", "expected solve(problem, ask)"),
        ("def solve(problem, ask, more): ...", "expected solve(problem, ask)"),
        ("x = 1\0", "does not parse"),
        ("(" * 3000 + ")" * 3000, "does not parse"),
        ("-" * 30_000 + "1", "does not parse"),
        ("x" * 70_000, "too long"),
    ],
)
def test_what_reading_shows(code: str, fault: str | None) -> None:
    found = fault_of(code, COMPONENT.signature)
    assert (found is None) if fault is None else fault in str(found)


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_without_harm(text: str) -> None:
    assert fault_of(text, COMPONENT.signature)


@pytest.mark.parametrize("signature", ["solve", "solve(", "1(a)", "solve(a) -> (", "x: int"])
def test_a_signature_that_is_none(signature: str) -> None:
    with pytest.raises(TaskError, match="is not NAME"):
        read_signature(signature)


def test_edits_change_what_they_name() -> None:
    first, second = (
        edit("    text = ask(problem)", "    text = ask(problem).strip()"),
        edit("return text", "return text or None"),
    )
    block = f"{first}\n{second}"
    assert Code().revised(block, PARENT) == (
        "def solve(problem, ask):\n    text = ask(problem).strip()\n    return text or None\n"
    )
    assert Code().revised(PARENT, "x") == PARENT
    assert Code().revised(edit("    text = ask(problem)\n", ""), PARENT).count("\n") == PARENT.count("\n") - 1


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (edit("missing", "x"), "occur 0 times, expected once: 'missing'"),
        (edit("text", "x"), "occur 2 times"),
        (edit("", "x"), "expected once"),
        ("<<<<<<< SEARCH\nreturn text\n=======\nx\n", "lacked a part"),
    ],
)
def test_edits_that_cannot_be_made(block: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Code().revised(block, PARENT)


def test_a_model_may_answer_with_edits_or_with_the_whole() -> None:
    whole = "def solve(problem, ask):\n    return 'something else altogether, without a word of the parent'"
    reflector = LanguageModelReflector(
        Says(f"Thoughts.\n```python\n{whole}\n```", f"```\n{edit('return text', 'return 7')}\n```")
    )
    assert reflector(request()) == whole  # a light edit of a prompt would have to keep half of it
    assert reflector(request()) == PARENT.replace("return text", "return 7")


def test_it_is_told_why_code_is_unusable_and_asked_again() -> None:
    chat = Says("```\ndef solve(x): ...\n```", f"```\n{edit('return text', 'return 7')}\n```")
    assert "return 7" in LanguageModelReflector(chat)(request())
    assert "the code defines solve(x), expected solve(problem, ask)" in chat.heard[1][-1]["content"]
    with pytest.raises(ReflectionFailed, match="same as the current"):
        LanguageModelReflector(Says(*[f"```\n{PARENT}\n```"] * 2))(request())


def test_a_request_shows_code_as_code_and_what_was_refused() -> None:
    chat = Says(f"```\n{edit('return text', 'return 7')}\n```")
    LanguageModelReflector(chat)(request(refused=[("def solve(): ...", "it has no parameters")]))
    (asked,) = chat.heard[0]
    for part in (
        "A Python program calls",
        "```python\ndef solve",
        "Nothing else.",
        "it has no parameters",
        ">>>>>>> REPLACE",
    ):
        assert part in asked["content"]
    assert "instructions" not in asked["content"].replace("names the instructions", "")


def test_checks_before_a_rollout() -> None:
    asked: list[str] = []

    def smoke(code: str) -> str | None:
        asked.append(code)
        return None if "good" in code else "it burns"

    kind = kind_of(Component("harness", "code", signature="solve(problem, ask)", check=smoke))
    good, bad = (f"def solve(problem, ask):\n    return '{word}'" for word in ("good", "bad"))
    assert kind.check(good, words, 60) is None
    assert kind.check(bad, words, 60) == (BROKEN, "it burns")
    assert kind.check(bad * 9, words, 9) == (BROKEN, "too long: 37 tokens, at most 9 are allowed")
    assert kind.check("", words, 9) == (BROKEN, "the code was empty")
    assert kind.check(f"{good} # \u202e", words, 60) == (
        BROKEN,
        "the code has characters that a reader does not see: '\\u202e'",
    )
    assert asked == [good, bad]
    assert KINDS["code"] is not kind
