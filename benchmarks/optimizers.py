"""The fast optimizers against each other with frozen weights: a rulebook, nano, no reflection model, equal rollouts, seeds.

    python benchmarks/optimizers.py run --out RESULTS [--seeds 0 1 2] [--optimizers gepa ape …] [--rollouts 600] [KEY=VALUE …]
    python benchmarks/optimizers.py report RESULTS

Two starts. *bare*: the task's seed text, which tells nothing; what is to be learnt stands only in the feedback. *cluttered*:
a seed text with all the rules among as many false ones about the same words, where scores alone tell which lines to drop.

`run` writes one JSON file for each optimizer, start and seed as it finishes, and passes over those that are there; `report`
needs only those files. A run ends with the cycle in which it has spent its rollouts, re-scoring among them.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from fastslow.recipe.parts import OPTIMIZER
from fastslow.study.curves import over_seeds

STARTS = ("bare", "cluttered")
EVERY = list(OPTIMIZER.registry.built_in)
SETTINGS = (
    "method=gepa",
    "task.told=0",
    "task.shortest=3",
    "task.longest=5",
    "slow.steps=1000000",
    "evaluation.every=1000000",
    "evaluation.divergence=false",
    "output.checkpoint_every=1000000",
)


def cluttered(options: dict[str, Any], seed: int) -> str:
    """All rules of the book and a false one for each word, in any order."""
    from fastslow.tasks.families.rulebook.task import Rulebook, RulebookOptions
    from fastslow.tasks.families.rulebook.universe import OPERATIONS, Codeword, say_codeword

    draw = random.Random(seed)
    task = Rulebook(RulebookOptions(**options))
    false = [
        say_codeword(
            Codeword(word, (draw.choice([each for each in OPERATIONS if each not in right.operations]),)), draw
        )
        for word, right in task.words.items()
    ]
    lines = [*task.rules(draw), *false]
    draw.shuffle(lines)
    return "\n".join([task.seed_text, *lines])


def run_one(optimizer: str, start: str, seed: int, rollouts: int, overrides: list[str], target: Path) -> None:
    from fastslow import RunFolder, load_recipe, train
    from fastslow.study.studies import RECIPE

    recipe = load_recipe(
        RECIPE, [*SETTINGS, *overrides, f"rollouts={rollouts}", f"seed={seed}", f"fast.optimizer={optimizer}"]
    )
    if start == "cluttered":
        text = cluttered(recipe.tasks[0].options, seed)
        recipe = recipe.model_copy(update={"fast": recipe.fast.model_copy(update={"seed_text": text})})
    with tempfile.TemporaryDirectory() as work:
        run = RunFolder.open(train(recipe, Path(work) / "run"))
        last = run.rows("evals")[-1]
        best = last["results"].get("best context", last["results"]["seed"])
        result = {
            "optimizer": optimizer,
            "start": start,
            "seed": seed,
            "reward": best["mean"],
            "seed_reward": last["results"]["seed"]["mean"],
            "rollouts": last["rollouts_fast"],
            "cycles": len(run.cycles()),
            "best": "\n".join(run.cycles()[-1]["population"][0]["texts"].values()),
        }
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1))


def report(folder: Path) -> None:
    """A table for each start, best first: reward over seeds with its 95% interval, and what was spent."""
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for start in STARTS:
        here = [result for result in results if result["start"] == start]
        if not here:
            continue
        seeds = sorted({result["seed"] for result in here})
        print(f"\nstart: {start}; validation reward of the best context, mean over seeds {seeds} [95% interval]")
        plain = [[result["seed_reward"] for result in here if result["seed"] == seed] for seed in seeds]
        print(f"{'(the seed text)':16} {over_seeds([sum(values) / len(values) for values in plain], 0, 1).words(3)}")
        found = {name: rows for name in EVERY if (rows := [result for result in here if result["optimizer"] == name])}
        for name, rows in sorted(found.items(), key=lambda item: -sum(row["reward"] for row in item[1]) / len(item[1])):
            spent = sum(row["rollouts"] for row in rows) / len(rows)
            print(f"{name:16} {over_seeds([row['reward'] for row in rows], 0, 1).words(3):28} rollouts {spent:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    run.add_argument("--optimizers", nargs="+", choices=EVERY, default=EVERY)
    run.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS)
    run.add_argument("--rollouts", type=int, default=600)
    run.add_argument("overrides", nargs="*")
    reporter = commands.add_parser("report")
    reporter.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "report":
        report(options.folder)
        return
    for seed in options.seeds:
        for start in options.starts:
            for optimizer in options.optimizers:
                target = options.out / f"{start}-{optimizer}-seed{seed}.json"
                if not target.exists():
                    run_one(optimizer, start, seed, options.rollouts, options.overrides, target)


if __name__ == "__main__":
    main()
