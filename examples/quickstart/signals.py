"""A task of one's own: rows in signals.jsonl, graded here. Each word has a hidden meaning; an answer gives both, in order."""

from typing import Any


def grade(answer: str, row: dict[str, Any]) -> tuple[float, str]:
    """The share of words that are right, and for each wrong one the rule that would have helped."""
    asked, expected, given = row["question"].split(), row["answer"].split(), answer.split()
    right = [index < len(given) and given[index] == word for index, word in enumerate(expected)]
    lessons = [f"{asked[index]} means {expected[index]}." for index, fine in enumerate(right) if not fine]
    if len(given) > len(expected):
        return 0.0, f"The answer has {len(given)} words instead of {len(expected)}."
    return sum(right) / len(right), "\n".join(lessons) or "Right."
