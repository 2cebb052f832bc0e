"""A grader of your own: a problem is a made-up word and a list, and only this file knows what the word says to do."""

from typing import Any

RULES = {
    "zorka": "zorka means : write the list backwards.",
    "blimo": "blimo means : put the first item last.",
    "kedlin": "kedlin means : sort the list.",
    "fonrax": "fonrax means : drop the first item.",
}


def grade(answer: str, row: dict[str, Any]) -> tuple[float, str]:
    """1 for exactly the right answer; otherwise a line about this problem, and the rule that would have helped."""
    given, word = " ".join(answer.split()), row["question"].split()[0]
    if given == row["answer"]:
        return 1.0, "Right."
    return 0.0, f"For {row['question']} the answer is not {given}.\n{RULES[word]}"
