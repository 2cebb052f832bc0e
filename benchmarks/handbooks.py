"""How much of the oracle's gain a run's text has on a handbook, with the weights that the run began with.

    fastslow train recipes/handbook.yaml method=gepa rollouts=300 fast.budget=88 seed=0 output.folder=RUN
    python -m benchmarks.handbooks measure RUN … [--problems 400] [--k 4]
    python -m benchmarks.handbooks report RUN … [--pool]

`measure` plays the seed text, the run's best text and the oracle's text (all rules) on validation problems and writes
oracle.json into the run's folder. `report` prints the share of the oracle's gain, (found - seed) / (oracle - seed), by task
and optimizer, with its interval over seeds: the ratio of the mean gains, by Fieller's theorem, since a ratio of each seed's
own gains would be dominated by the seed with the smallest.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ORACLE = "oracle.json"
LITTLE = 0.02
"""A mean gain of the oracle below which a share of it says nothing."""


def measure(folder: Path, problems: int, k: int) -> dict[str, float]:
    from fastslow.base.world import derive_seed
    from fastslow.evaluation.measure import evaluate_task
    from fastslow.launch.assembly import assemble, find_world, open_snapshot
    from fastslow.records import Context

    snapshot = open_snapshot(folder)
    recipe = snapshot.run.recipe
    parts = assemble(recipe, folder, find_world(recipe))
    (component,) = parts.seed_texts
    oracle = getattr(parts.task, "oracle_text")  # noqa: B009  only handbooks have one
    contexts = {
        "seed": Context(dict(parts.seed_texts)),
        "found": snapshot.pool.best.context,
        "oracle": Context({component: oracle}),
    }
    scores, _, _ = evaluate_task(
        *(parts.player, contexts, "validation", problems),
        k=k,
        sampling=recipe.evaluation.sampling(recipe.sampling.max_tokens),
        policy_step=0,
        seed=derive_seed(recipe.seed, "oracle"),
    )
    found = {label: score.mean for label, score in scores.items()}
    (folder / ORACLE).write_text(json.dumps({**found, "problems": problems, "k": k}))
    parts.engine.close()
    return found


def fieller(over: Sequence[float], under: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of two means over the same seeds, and its 95% interval."""
    from scipy.stats import t

    top, bottom = np.mean(over), np.mean(under)
    cover = np.cov(over, under) / len(over)
    quantile = float(t.ppf(0.975, len(over) - 1))
    a = bottom**2 - quantile**2 * cover[1, 1]
    b = top * bottom - quantile**2 * cover[0, 1]
    c = top**2 - quantile**2 * cover[0, 0]
    if a <= 0 or b * b < a * c:
        return float(top / bottom), -math.inf, math.inf
    root = math.sqrt(b * b - a * c)
    return float(top / bottom), float((b - root) / a), float((b + root) / a)


def report(folders: Sequence[Path], pool: bool = False) -> None:
    """A row for each folder of runs, task and optimizer; `pool` leaves the folders out."""
    from fastslow.runs.folder import RunFolder

    groups: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for folder in folders:
        run = RunFolder.open(folder)
        options = run.recipe.task
        rules = options.model_dump().get("rules", "")
        measured = json.loads((folder / ORACLE).read_text())
        spent = json.loads((folder / "ledger.json").read_text())
        measured["rollouts"] = sum(
            row["rollouts"]
            for name, row in spent.items()
            if name in ("rescore", "fast-score", "fast-minibatch", "slow")
        )
        task = f"{options.name}, {rules} rules" if rules else options.name
        place = "" if pool else str(folder.parent)
        groups.setdefault((place, task, run.recipe.fast.optimizer.name), []).append(measured)
    columns = (
        "folder, task, optimizer, seeds, rollouts, seed text, found, oracle, share of the gain, worse than seed text"
    )
    print(f"| {' | '.join(columns.split(', '))} |")
    print("|---" * 10 + "|")
    for (place, task, optimizer), rows in sorted(groups.items()):
        mean = {name: float(np.mean([row[name] for row in rows])) for name in ("rollouts", "seed", "found", "oracle")}
        share, low, high = fieller(
            [row["found"] - row["seed"] for row in rows], [row["oracle"] - row["seed"] for row in rows]
        )
        worse = sum(row["found"] < row["seed"] for row in rows)
        gained = f"{share:.2f} [{low:.2f}, {high:.2f}]"
        if mean["oracle"] - mean["seed"] < LITTLE:
            gained = f"the oracle gains {mean['oracle'] - mean['seed']:.2f}"
        print(
            f"| {place} | {task} | `{optimizer}` | {len(rows)} | {mean['rollouts']:.0f} | {mean['seed']:.2f} | "
            f"{mean['found']:.2f} | {mean['oracle']:.2f} | {gained} | {worse} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["measure", "report"])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--pool", action="store_true", help="report: the runs of all folders together")
    parser.add_argument("--problems", type=int, default=400)
    parser.add_argument("--k", type=int, default=4)
    options = parser.parse_args()
    if options.command == "report":
        report(options.runs, options.pool)
        return
    for folder in options.runs:
        print(folder, measure(folder, options.problems, options.k), flush=True)


if __name__ == "__main__":
    main()
