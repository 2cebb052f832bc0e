"""What an order costs, in cents, by a price list that only the grader knows."""

from typing import Any

from fastslow import Feedback

PLAIN = "Write crates * pieces * cents, and nothing else."
BROKEN = "Broken crates are not charged: write (crates - broken) for the crates."
EXPRESS = "By express, 950 cents are added at the end: + 950."
TOOL = (
    "Products this large go wrong in the head: the code has to give the answer of ask to tools.calculate, which takes a "
    "text, and return what it gives."
)


def expression(row: dict[str, Any]) -> str:
    crates = f"({row['crates']} - {row['broken']})" if row["broken"] else str(row["crates"])
    return f"{crates} * {row['each']} * {row['cents']}" + (" + 950" if row["express"] else "")


def grade(answer: str, row: dict[str, Any]) -> Feedback:
    """1 for exactly the right number of cents; otherwise what the prompt and what the code should have known."""
    right = (row["crates"] - row["broken"]) * row["each"] * row["cents"] + 950 * row["express"]
    if answer.replace(",", "").strip() == str(right):
        return Feedback(1.0, "Right.")
    rules = [PLAIN, *([BROKEN] if row["broken"] else []), *([EXPRESS] if row["express"] else [])]
    words = f"The order costs {expression(row)} = {right} cents."
    return Feedback(0.0, by_component={"system": "\n".join([words, *rules]), "harness": f"{words}\n{TOOL}"})
