"""Seconds an update takes with shared prefixes and without, by length of the context, in one process after a warm-up.

python benchmarks/update.py [--model nano] [--contexts 0 100 400] [KEY=VALUE …]

Rollouts are drawn at random, so nothing of a completion is shared; each problem's are spread over four contexts.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from fastslow.models.load import load_policy
from fastslow.quickstart import RECIPE
from fastslow.recipe import Recipe, load_recipe
from fastslow.rollouts.records import Completion, Turn
from fastslow.rollouts.world import World
from fastslow.slow.trainer import FastSlowTrainer
from fastslow.slow.update import Row, Update

CONTEXTS = 4


def rows(recipe: Recipe, context: int, problem: int, vocabulary: int) -> list[Row]:
    """A step's rollouts with answers of every length up to the longest."""
    draw = random.Random(0)

    def ids(length: int) -> list[int]:
        return [draw.randrange(3, vocabulary) for _ in range(length)]

    contexts = [ids(context) for _ in range(CONTEXTS)]
    made = []
    for _ in range(recipe.slow.problems):
        asked = ids(problem)
        for place in range(recipe.slow.group):
            answer = ids(draw.randint(1, recipe.sampling.max_tokens))
            prompt = [*contexts[place * CONTEXTS // recipe.slow.group], *asked]
            turn = Turn("system", "", prompt, Completion(answer, [-1.0] * len(answer)), "")
            made.append(Row(turn, draw.gauss(0, 1), 0))
    return made


def seconds(recipe: Recipe, made: list[Row], steps: int) -> list[float]:
    """Of each update after the first."""
    taken: list[float] = []

    def updates() -> Iterator[Update]:
        for step in range(1, steps + 2):
            started = time.perf_counter()
            yield Update(step, [Row(row.turn, row.advantage, step - 1) for row in made], 0.0, step == steps + 1)
            taken.append(time.perf_counter() - started)

    with tempfile.TemporaryDirectory() as work:
        trainer = FastSlowTrainer(load_policy(recipe.model), recipe, Path(work), World())
        trainer.follow(updates())
    return taken[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--contexts", type=int, nargs="+", default=[0, 100, 400, 800])
    parser.add_argument("--problem", type=int, default=40)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    print("context  tokens      padded     shared   ratio")
    for context in options.contexts:
        found = {}
        for shared in (False, True):
            recipe = load_recipe(
                RECIPE,
                [f"model={options.model}", f"slow.steps={options.steps + 1}", f"slow.shared_prefix={shared}",
                 *options.overrides],
            )  # fmt: skip
            policy = load_policy(recipe.model)
            made = rows(recipe, context, options.problem, policy.model.config.vocab_size)
            found[shared] = median(seconds(recipe, made, options.steps))
        tokens = sum(len(row.turn.prompt_ids) + len(row.turn.completion.ids) for row in made)
        ratio = found[False] / found[True]
        print(f"{context:7}  {tokens:6}  {found[False]:8.3f} s {found[True]:8.3f} s  {ratio:5.2f}×")


if __name__ == "__main__":
    main()
