"""Problems of a few lines, a policy that changes letters, and runs of both, for tests."""

from __future__ import annotations

import random
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from fake_engine import END, FakeEngine
from fake_runs import outcome, recipe_of

from fastslow.discover.task import Discover, DiscoverOptions
from fastslow.recipe import Recipe
from fastslow.records import Completion
from fastslow.runs.folder import RunFolder

HEAD = '''"""Find three numbers with the largest sum, each at most 1."""
from fastslow.discover import run

goal = "maximize"
seed = "def solve():\\n    return [0.1, 0.2, 0.3]\\n"
seconds = 1
'''
SUM = (
    HEAD
    + """

def evaluate(candidate):
    numbers = run(candidate, "solve")
    if len(numbers) != 3 or not max(numbers) <= 1:
        raise ValueError("expected three numbers of at most 1")
    return sum(numbers), f"the sum is {sum(numbers)}"
"""
)


def write(folder: Path, text: str, name: str = "problem.py") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


class Changes(FakeEngine):
    """A policy that changes one of the letters it is shown; now and then it repeats them, or writes something else."""

    def _completion(self, text: str, draw: random.Random) -> Completion:
        letters = text.rsplit("letters:", maxsplit=1)[-1].split()
        kind = draw.random()
        if kind < 0.8:
            letters[draw.randrange(len(letters))] = draw.choice(ascii_lowercase)
        words = " ".join(letters) if kind < 0.9 else "no" if kind < 0.95 else ""
        ids = (*self.tokenizer(words)["input_ids"], END)
        return Completion(ids, (-0.5,) * len(ids))


def search_of(path: str | Path, **options: Any) -> Discover:
    return Discover(DiscoverOptions(path=str(path), workers=2, **options))


def recipe(method: str = "fst", **changes: Any) -> Recipe:
    return recipe_of(
        method,
        **{
            "evaluation": {"every": 0},
            "slow": {"problems": 1, "group": 4, "steps": 4, "advantage": "entropic", "patience": None},
            "fast": {"anchors": 2, "budget": 4, "cycle": 2, "minibatch": 1},
            "output": {"checkpoint_every": 2},
            **changes,
        },
    )


def left(folder: Path) -> dict[str, Any]:
    """What a run leaves, as far as it must not depend on interruptions."""
    opened = RunFolder.open(folder)
    best = {file.name: file.read_text() for file in folder.glob("best.*")}
    return {**outcome(folder), "candidates": opened.rows("candidates"), "best": best}
