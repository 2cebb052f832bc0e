"""A task with a harness, an engine that answers it, and a reflection model that follows a script."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from fake_engine import END, FakeEngine

from fastslow.fast.reflection import Reply
from fastslow.records import Completion, Example, Feedback
from fastslow.tasks.base import Split
from fastslow.tasks.harness import HarnessTask

SEED = """\
def solve(problem, ask, tools):
    return ask(problem["question"])
"""
CALCULATES = """\
def solve(problem, ask, tools):
    for _ in range(3):
        try:
            return tools.calculate(ask(problem["question"]))
        except ValueError:
            pass
    return "nothing"
"""
CRASHES = """\
def solve(problem, ask, tools):
    numbers = problem["question"].split()
    return numbers[7]
"""


def calculate(expression: str) -> int:
    """The value of a product such as `3 * 4`."""
    one, sign, other = expression.split()
    if sign != "*":
        raise ValueError(f"'{sign}' is no sign that I know")
    return int(one) * int(other)


class Products(HarnessTask):
    """Products that the policy can write down, and only the tool can compute."""

    seed_text = "Write the product."
    seed_code = SEED

    def __init__(self, problems: int = 100) -> None:
        super().__init__()
        self.problems = problems

    def examples(self, split: Split) -> list[Example]:
        return [
            Example(f"{split}-{number}", {"a": 100 + number, "b": 31 + number, "answer": "secret"})
            for number in range(self.problems)
        ]

    def problem(self, example: Example) -> Any:
        return {"question": f"what is {example.data['a']} * {example.data['b']}"}

    def tools(self, example: Example) -> Mapping[str, Any]:
        return {"calculate": calculate}

    def grade(self, example: Example, answer: str) -> Feedback:
        right = answer == str(example.data["a"] * example.data["b"])
        return Feedback(float(right), "Right." if right else f"'{answer}' is not the number.\nCompute the product.")


class Copies(FakeEngine):
    """Copies the last three words of its prompt, or mumbles, less often with every update."""

    def _completion(self, text: str, draw: random.Random) -> Completion:
        words = text.split()[-3:] if draw.random() < 0.8 + self.skill else ["er", "um", "7"]
        ids = (*self.tokenizer(" ".join(words))["input_ids"], END)
        return Completion(ids, (-0.5,) * len(ids))


class Scripted:
    """A chat that answers requests for code with the given ones in turn, and requests for a prompt with another prompt."""

    def __init__(self, codes: Sequence[str]) -> None:
        self.codes, self.prompts = codes, 0
        self.asked: list[str] = []

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        asked = messages[0]["content"]
        if "A Python program calls a language model" not in asked:
            return Reply(f"```\nWrite the product, {seed} times.\n```", 10, 10)
        self.asked.append(asked)
        return Reply(f"```python\n{self.codes[(len(self.asked) - 1) % len(self.codes)]}\n```", 10, 10)
