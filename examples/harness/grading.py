"""Two made-up words one after the other, on a list. The grader says what the words ask for."""

from typing import Any


def grade(answer: str, row: dict[str, Any]) -> tuple[float, str]:
    """1 for exactly the right list; otherwise what was wrong with it, and how it could have been right."""
    given = " ".join(answer.split())
    if given == row["answer"]:
        return 1.0, "Right."
    words = row["question"].partition(" : ")[0].split(" then ")
    return 0.0, (
        f"For {row['question']} the answer is not {given}.\n"
        f"Look both words up, and apply them one after the other: {words[0]} to the list, {words[1]} to what comes out."
    )
