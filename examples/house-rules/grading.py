r"""House rules: a question that every model understands, and a form that only the grader knows.

"Put these numbers in order" says neither which way nor how to write the answer. Here the largest comes first, in a
\boxed{}, which a model that is asked the bare question hardly ever writes: reward alone has little to start from, and the
grader's feedback says what is missing.
"""

import re
from typing import Any

from fastslow import Feedback

# The rules of every problem, each a whole sentence that a context can use unchanged.
WRITE_A_BOX = r"Write the numbers inside a box, with commas between them, like this: \boxed{9, 5, 2}."
LARGEST_FIRST = "Begin with the largest one and end with the smallest."
EACH_ONCE = "Use every number that is given exactly once and no other."


def grade(answer: str, row: dict[str, Any]) -> Feedback:
    """1 for exactly the right box; otherwise a line about this problem, the rule that was broken, and how far it got."""
    fault = _fault(answer, [int(number) for number in row["answer"].split(", ")])
    if fault is None:
        return Feedback(1.0, f"Right: '{row['question']}' gives {row['answer']}.")
    fact, rule, progress = fault
    return Feedback(0.0, f"The answer to '{row['question']}' {fact}.\n{rule}", progress=progress)


def _fault(answer: str, wanted: list[int]) -> tuple[str, str, float] | None:
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", answer)
    if not boxes:
        return "is not in a box", WRITE_A_BOX, 0.0
    if not re.fullmatch(r"\s*\d{1,9}(\s*,\s*\d{1,9})*\s*", boxes[-1]):
        return "has something else than numbers and commas in its box", WRITE_A_BOX, 0.2
    given = [int(number) for number in boxes[-1].split(",")]
    if sorted(given, reverse=True) != wanted:
        return "is made of other numbers", EACH_ONCE, 0.4
    if given != wanted:
        wrong, right = next((g, w) for g, w in zip(given, wanted, strict=True) if g != w)
        return f"has {wrong} where {right} belongs", LARGEST_FIRST, 0.7
    return None
