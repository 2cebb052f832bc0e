"""FST against RL only and GEPA only on the quickstart's rulebook, at the same total rollouts, over several seeds.

    python benchmarks/nano_comparison.py run --seeds 0 1 2 3 4 --out RESULTS [--jobs 1] [KEY=VALUE …]
    python benchmarks/nano_comparison.py report RESULTS [--figure docs/nano-comparison.png]

`run` writes one JSON file a seed with the evaluation rows of each method as it finishes; `report` needs only those files.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scipy import stats

RECIPE = Path(__file__).resolve().parent.parent / "recipes" / "rulebook.yaml"
NAMES = {"rl": "RL only", "gepa": "GEPA only", "fst": "FST"}
COLOURS = {"rl": "#c0504d", "gepa": "#4f81bd", "fst": "#2e8b57"}
UNTIL_SPENT = 100_000  # steps, more than any budget of rollouts lasts for
Rows = list[dict[str, Any]]


def evaluated(row: dict[str, Any]) -> dict[str, Any]:
    """The result a run is judged by: under its best context, or under the seed where there is no better."""
    return row["results"].get("best context", row["results"]["seed"])


def training_rollouts(row: dict[str, Any]) -> int:
    return row["rollouts_slow"] + row["rollouts_fast"]


def run_seed(seed: int, out: Path, overrides: list[str]) -> None:
    """Both loops first: what they spend is what each alone may spend."""
    from fastslow import RunFolder, load_recipe, train

    results: dict[str, Any] = {}
    limits: list[str] = []
    with tempfile.TemporaryDirectory() as work:
        for method in ("fst", "rl", "gepa"):
            recipe = load_recipe(RECIPE, [*overrides, f"seed={seed}", f"method={method}", *limits])
            results[method] = RunFolder.open(train(recipe, Path(work) / method)).rows("evals")
            out.mkdir(parents=True, exist_ok=True)
            (out / f"seed-{seed}.json").write_text(json.dumps(results))
            limits = [f"rollouts={training_rollouts(results['fst'][-1])}", f"slow.steps={UNTIL_SPENT}"]


def interval(values: list[float]) -> str:
    """Mean and 95% interval over seeds, Student's t."""
    mean = sum(values) / len(values)
    if len(values) < 2 or max(values) == min(values):
        return f"{mean:.3f} (all {len(values)} alike)" if len(values) > 1 else f"{mean:.3f}"
    low, high = stats.t.interval(0.95, len(values) - 1, mean, stats.sem(values))
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def rollouts_to(rows: Rows, reward: float) -> float:
    """Rollouts spent at the first evaluation that reaches a reward."""
    return next((training_rollouts(row) for row in rows if evaluated(row)["mean"] >= reward), math.inf)


def kl_at(rows: Rows, reward: float) -> float:
    return next((evaluated(row)["kl"] for row in rows if evaluated(row)["mean"] >= reward), math.nan)


def report(folder: Path, figure: Path | None) -> None:
    seeds = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("seed-*.json"))}
    final = {m: [evaluated(seed[m][-1])["mean"] for seed in seeds.values()] for m in NAMES}
    print(f"{len(seeds)} seeds: {', '.join(seeds)}")
    for method, name in NAMES.items():
        spent = [training_rollouts(seed[method][-1]) for seed in seeds.values()]
        kl = [evaluated(seed[method][-1])["kl"] for seed in seeds.values()]
        print(
            f"{name:10} final reward {interval(final[method])}  rollouts {sum(spent) / len(spent):.0f}  KL {interval(kl)}"
        )
    for other in ("rl", "gepa"):
        margins = [a - b for a, b in zip(final["fst"], final[other], strict=True)]
        print(f"FST − {NAMES[other]}: {interval(margins)}")
    for name, seed in seeds.items():
        peak = max(evaluated(row)["mean"] for row in seed["rl"])
        if peak == 0:
            print(f"{name}: RL only never left zero; FST did by {rollouts_to(seed['fst'], 1e-9):.0f} rollouts")
            continue
        ours, theirs = rollouts_to(seed["fst"], peak), rollouts_to(seed["rl"], peak)
        print(
            f"{name}: RL's peak {peak:.2f} at {theirs:.0f} rollouts; FST reaches it at {ours:.0f} "
            f"({theirs / ours:.1f}× fewer); KL there: RL {kl_at(seed['rl'], peak):.4f}, FST {kl_at(seed['fst'], peak):.4f}"
        )
    if figure is not None:
        draw(seeds, figure)


def draw(seeds: dict[str, Any], target: Path) -> None:
    """Validation reward against rollouts of both loops, a line a seed."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    picture, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for method, name in NAMES.items():
        for number, seed in enumerate(seeds.values()):
            spent = [training_rollouts(row) for row in seed[method]]
            rewards = [evaluated(row)["mean"] for row in seed[method]]
            label = name if number == 0 else None
            axes.plot(spent, rewards, marker="o", markersize=3, alpha=0.6, color=COLOURS[method], label=label)
    axes.set(xlabel="training rollouts spent, both loops", ylabel="validation reward", ylim=(-0.02, 1.02))
    axes.set_title(f"A hidden rulebook at equal rollouts, {len(seeds)} seeds", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    picture.savefig(target, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--jobs", type=int, default=1)
    run.add_argument("overrides", nargs="*")
    reporter = commands.add_parser("report")
    reporter.add_argument("folder", type=Path)
    reporter.add_argument("--figure", type=Path)
    options = parser.parse_args()
    if options.command == "report":
        report(options.folder, options.figure)
    elif len(options.seeds) == 1:
        run_seed(options.seeds[0], options.out, options.overrides)
    else:
        waiting = list(options.seeds)
        running: list[subprocess.Popen[bytes]] = []
        while waiting or running:
            while waiting and len(running) < options.jobs:
                command = [sys.executable, __file__, "run", "--seeds", str(waiting.pop(0)), "--out", str(options.out)]
                running.append(subprocess.Popen([*command, *options.overrides]))
            running.pop(0).wait()


if __name__ == "__main__":
    main()
