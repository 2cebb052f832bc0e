"""How hard star graphs are for a model, over degree and path: untrained, and with --methods what training makes of it.

    python benchmarks/star_graph_sweep.py --degrees 2,5,25 --paths 3,5,20 --out RESULTS [KEY=VALUE …]
    python benchmarks/star_graph_sweep.py --degrees 5 --paths 3,5 --methods fst,rl --out RESULTS slow.steps=60

Keys and values change the recipe (recipes/star-graph.yaml, or --recipe): model=NAME; evaluation.problems=50 evaluation.k=16
for the published check, where degree 25 and path 20 are never solved in 16 tries. Methods are compared at the rollouts of
FST, which therefore always runs. Results stay in RESULTS: repeat the command to resume; with more degrees, paths or methods
it measures only the new ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fastslow import Recipe, load_recipe
from fastslow.base.errors import FastSlowError, TaskError
from fastslow.base.world import derive_seed
from fastslow.evaluation.measure import Score, evaluate
from fastslow.launch.assembly import Parts, assemble, check_lengths, find_world
from fastslow.recipe.model import Method
from fastslow.records import Context
from fastslow.rollouts.play import Player
from fastslow.runs import files
from fastslow.study.arms import LOOKS
from fastslow.study.curves import read_curve
from fastslow.study.training import METHODS, check_methods, run_method
from fastslow.tasks.registry import build_task

RECIPE = Path(__file__).parents[1] / "recipes" / "star-graph.yaml"
MEASURED_WITH: Any = {
    **dict.fromkeys(("model", "task", "sampling", "seed"), True),
    "evaluation": {"problems", "k", "temperature", "top_p"},
}
"""The parts of a recipe that the score of an untrained model depends on."""


def setting(file: Path, degree: int, path: int, nodes: int, overrides: list[str]) -> Recipe:
    """The recipe for one degree and path, with as many nodes as they need or more."""
    enough = max(nodes, 1 + degree * (path - 1))
    return load_recipe(file, [*overrides, f"task.degree={degree}", f"task.path={path}", f"task.nodes={enough}"])


def untrained(recipe: Recipe, load: Callable[[], Parts], file: Path) -> Score:
    """The model's score under the seed text: the one in the file, or measured now and written there."""
    used = files.plain(recipe.model_dump(include=MEASURED_WITH))
    there = files.read_json(file)
    if there is not None:
        if there["recipe"] != used:
            raise FastSlowError(f"'{file}' was measured with other settings; give the same ones, or another --out")
        return Score(**there["score"])
    parts, task = load(), build_task(recipe)
    engine, chat = parts.engine, parts.player.chat
    check_lengths(task, chat, parts.seed_texts, recipe.sampling.max_tokens, engine.max_length)
    scores, _, _ = evaluate(
        Player(task, engine, chat),
        [Context(dict(parts.seed_texts))],
        task.examples("validation")[: recipe.evaluation.problems],
        k=recipe.evaluation.k,
        sampling=recipe.evaluation.sampling(recipe.sampling.max_tokens),
        policy_step=0,
        seed=derive_seed(recipe.seed, "evaluation"),
    )
    files.write_json(file, {"recipe": used, "score": scores[0].to_dict()})
    return scores[0]


def trained(method: Method, folder: Path) -> str:
    """Where a finished run ended."""
    curve = read_curve(folder / method)
    return f"{_with_interval(curve.rewards[-1], curve.lows[-1], curve.highs[-1])}, {curve.rollouts[-1]:,} rollouts"


def sweep(options: argparse.Namespace, console: Console) -> None:
    recipes = {
        (degree, path): setting(options.recipe, degree, path, options.nodes, options.overrides)
        for degree, path in product(options.degrees, options.paths)
    }
    for (degree, path), recipe in recipes.items() if options.methods else ():
        check_methods(recipe, options.out / "runs" / f"degree-{degree}-path-{path}")

    @cache
    def load() -> Parts:
        """The model, once for all settings; an easy one, so that it is not refused for the length of a hard one."""
        recipe = setting(options.recipe, 2, 2, 0, options.overrides)
        recipe = recipe.model_copy(update={"slow": recipe.slow.model_copy(update={"kl": 0.0})})  # no reference model
        return assemble(recipe, options.out, find_world(recipe))

    k = next(iter(recipes.values())).evaluation.k
    names = [LOOKS[method].name for method in options.methods]
    table = Table("degree", "path", "guessing", f"untrained: mean@{k}", f"best@{k}", *names)
    for (degree, path), recipe in recipes.items():
        name = f"degree-{degree}-path-{path}"
        try:
            score = untrained(recipe, load, options.out / "untrained" / f"{name}.json")
        except TaskError as error:
            console.print(f"{name}: {error}", markup=False, highlight=False)
            table.add_row(str(degree), str(path), f"{1 / degree:.3f}", "does not fit")
            continue
        ends = [
            trained(method, run_method(method, recipe, options.out / "runs" / name).parent)
            for method in options.methods
        ]
        table.add_row(
            str(degree),
            str(path),
            f"{1 / degree:.3f}",
            _with_interval(score.mean, score.low, score.high),
            _with_interval(score.best, score.best_low, score.best_high),
            *ends,
        )
    console.print(table)


def _numbers(text: str) -> list[int]:
    if not all(number.isdecimal() for number in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' are not whole numbers, as in 2,5,25")
    return sorted({int(number) for number in text.split(",")})


def _methods(text: str) -> list[Method]:
    """Those asked for, in the order they are run; FST sets the rollouts of the others."""
    asked = {"fst", *text.split(",")}
    if unknown := sorted(asked - set(METHODS)):
        raise argparse.ArgumentTypeError(f"there is no method {unknown}; expected some of {','.join(METHODS)}")
    return [method for method in METHODS if method in asked]


def _with_interval(mean: float, low: float, high: float) -> str:
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=RECIPE)
    parser.add_argument("--degrees", type=_numbers, required=True)
    parser.add_argument("--paths", type=_numbers, required=True)
    parser.add_argument("--nodes", type=int, default=500, help="names to draw from, more where they do not suffice")
    parser.add_argument("--methods", type=_methods, default=[], help="train with these too: fst,rl,gepa")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_intermixed_args(arguments)
    try:
        sweep(options, Console())
    except FastSlowError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
