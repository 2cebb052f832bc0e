"""Is a line used, is it followed: counts by hand against those of the report."""

from __future__ import annotations

from typing import Any

from fastslow.runs.use import Use, count_uses, verdict

TEXT = "Answer.\n- Apples go by the crate.\n- Pears: expected '…' kilos"
TEXTS = {"a": {"system": TEXT}, "b": {"system": "Answer."}}


def row(example: str, feedback: str = "", context: str = "a", shown: list[str | None] | None = None) -> dict[str, Any]:
    score = 0.0 if feedback else 1.0
    return {
        **{"example": example, "context": context, "score": score, "feedback": feedback, "error": ""},
        **{"components": ["system"] * len(shown or [""]), "shown": shown},
    }


def counted(*rows: dict[str, Any]) -> dict[str, Use]:
    return count_uses(rows, TEXTS["a"], TEXTS)


def numbers(use: Use) -> tuple[int, int, int, int, int]:
    return use.written, use.in_play, use.about, use.followed, use.missed


APPLES, PEARS = "- Apples go by the crate.", "- Pears: expected '…' kilos"


def test_a_line_is_judged_on_problems_of_which_the_grader_said_it_before() -> None:
    found = counted(
        row("one", "apples go  by the crate.", "b"),  # from here on it is about this problem
        row("one", "Wrong. Apples go by the crate. Think."),
        row("one"),
        row("two"),
        row("one", "Pineapples go by the crate."),
    )
    assert numbers(found[APPLES]) == (4, 4, 3, 2, 0)
    assert numbers(found["Answer."]) == (5, 5, 0, 0, 0)


def test_a_line_that_was_not_shown_was_not_in_play() -> None:
    with_it, without = f"Answer.\n{APPLES}", "Answer."
    found = counted(
        row("one", "Apples go by the crate.", shown=[without]),
        row("one", "Apples go by the crate.", shown=[without]),
        row("one", "Apples go by the crate.", shown=[with_it]),
        row("one", shown=[without, with_it]),
        row("one", shown=[None]),
    )
    assert numbers(found[APPLES]) == (5, 3, 3, 2, 1)
    assert found[APPLES].by_turn == {1: [2, 2, 1], 2: [1, 1, 1]}
    assert found[APPLES].to_dict()["turns"] == [[1, 2, 2, 1], [2, 1, 1, 1]]
    assert found["Answer."].to_dict()["turns"] == [[1, 5, 0, 0], [2, 1, 0, 0]]


def test_values_that_a_line_leaves_out_may_be_any() -> None:
    found = counted(row("one", "Pears: expected '12' kilos"), row("one", "pears: expected '7.5' kilos"))
    assert numbers(found[PEARS]) == (2, 2, 1, 0, 0)


def test_faulty_grades_say_nothing() -> None:
    found = counted({**row("one", "Apples go by the crate."), "error": "it broke"}, row("one"))
    assert numbers(found[APPLES]) == (1, 1, 0, 0, 0)


def test_the_report_names_the_line_that_is_never_followed() -> None:
    rows = [row("one", "Apples go by the crate.") for _ in range(9)]
    found = counted(*rows)
    assert found[APPLES].ignored
    said = verdict(found.values())
    assert said.startswith(f"in front of the model and not followed: '{APPLES}' (0 of 8 times); ")
    assert "work for the weights" in said
    assert verdict(counted(*rows[:8]).values()) == ""  # seen too seldom
    assert verdict(counted(*rows, row("one")).values()) == ""


def test_several_values_in_a_line_are_each_any_word_and_not_more() -> None:
    line = "Write (…,…): “…” is wrong"
    texts = {"a": {"system": line}}

    def missed(feedback: str) -> int:
        said = row("p", feedback)
        return count_uses([said, said], texts["a"], texts)[line].about

    assert missed("Write (12,b): “x” is wrong.") == missed("write (1,2,3): “y,” is  wrong") == 1
    assert missed("Write (12): “x” is wrong.") == missed("Write (1,2): “x” is wrongly put.") == 0
