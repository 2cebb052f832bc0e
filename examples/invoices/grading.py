"""What an order costs, in cents, by a price list that only the grader knows."""

import re
from typing import Any

BROKEN = "Broken crates are not charged: subtract them from the crates."
EXPRESS = "Express adds 950 cents to the total."
PLAIN = "The total is crates * pieces in a crate * cents a piece."
TOOL = "Products this large go wrong in one's head: tools.calculate takes an expression and returns its value."


def expression(row: dict[str, Any]) -> str:
    crates = f"({row['crates']} - {row['broken']})" if row["broken"] else str(row["crates"])
    return f"{crates} * {row['each']} * {row['cents']}" + (" + 950" if row["express"] else "")


def grade(answer: str, row: dict[str, Any]) -> tuple[float, str]:
    """1 for exactly the right number of cents; otherwise the rules of the price list that this order needs."""
    right = (row["crates"] - row["broken"]) * row["each"] * row["cents"] + 950 * row["express"]
    given = re.sub(r"[,\s]", "", answer)
    if given == str(right):
        return 1.0, "Right."
    said = [
        f"The answer '{' '.join(answer.split())[:60]}' is not the total {right}, which is {expression(row)}.",
        PLAIN,
    ]
    said += [BROKEN] if row["broken"] else []
    said += [EXPRESS] if row["express"] else []
    said += ["Answer with the number alone."] if not given.isdigit() else []
    return 0.0, "\n".join([*said, TOOL])
