"""FST against RL only and GEPA only on the quickstart's rulebook, at the same total rollouts, over several seeds.

    python benchmarks/nano_comparison.py run --seeds 0 1 2 3 4 --out RESULTS [--jobs 1] [KEY=VALUE …]
    python benchmarks/nano_comparison.py report RESULTS [--figure docs/nano-comparison.png]

`run` writes one JSON file a seed with the evaluation rows of each method as it finishes; `report` needs only those files.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from scipy import stats

from fastslow.study.curves import Curve
from fastslow.study.figure import LOOKS, draw


def run_seed(seed: int, out: Path, overrides: list[str]) -> None:
    """The three methods in a folder that goes away; their evaluations stay."""
    from fastslow import RunFolder, load_recipe
    from fastslow.quickstart import RECIPE
    from fastslow.study.equal_rollouts import METHODS, run_method

    recipe = load_recipe(RECIPE, [*overrides, f"seed={seed}"])
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as work:
        for method in METHODS:
            results[method] = RunFolder.open(run_method(method, recipe, Path(work))).rows("evals")
            out.mkdir(parents=True, exist_ok=True)
            (out / f"seed-{seed}.json").write_text(json.dumps(results))


def interval(values: list[float]) -> str:
    """Mean and 95% interval over seeds, Student's t."""
    mean = sum(values) / len(values)
    if len(values) < 2 or max(values) == min(values):
        return f"{mean:.3f} (all {len(values)} alike)" if len(values) > 1 else f"{mean:.3f}"
    low, high = stats.t.interval(0.95, len(values) - 1, mean, stats.sem(values))
    return f"{mean:.3f} [{low:.3f}, {high:.3f}]"


def report(folder: Path, figure: Path | None) -> None:
    """Print where the methods ended, over seeds and seed by seed; with `figure`, draw their curves."""
    files = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("seed-*.json"))}
    curves = {
        method: [Curve.from_rows(rows[method]) for rows in files.values()] for method in next(iter(files.values()))
    }
    final = {method: [curve.rewards[-1] for curve in seeds] for method, seeds in curves.items()}
    print(f"{len(files)} seeds: {', '.join(files)}")
    for method, seeds in curves.items():
        spent = sum(curve.rollouts[-1] for curve in seeds) / len(seeds)
        kl = interval([curve.kls[-1] for curve in seeds])
        print(f"{LOOKS[method].name:10} final reward {interval(final[method])}  rollouts {spent:.0f}  KL {kl}")
    for other in ("rl", "gepa"):
        margins = [a - b for a, b in zip(final["fst"], final[other], strict=True)]
        print(f"FST − {LOOKS[other].name}: {interval(margins)}")
    for name, fst, rl in zip(files, curves["fst"], curves["rl"], strict=True):
        peak = max(rl.rewards)
        if peak == 0:
            print(f"{name}: RL only never left zero; FST did by {fst.rollouts_to(1e-9):.0f} rollouts")
            continue
        ours, theirs = fst.rollouts_to(peak), rl.rollouts_to(peak)
        print(
            f"{name}: RL's peak {peak:.2f} at {theirs:.0f} rollouts; FST reaches it at {ours:.0f} "
            f"({theirs / ours:.1f}× fewer); KL there: RL {rl.kl_at(peak):.4f}, FST {fst.kl_at(peak):.4f}"
        )
    if figure is not None:
        draw(curves, figure, f"a hidden rulebook, model nano, {len(files)} seeds, a line for each")


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
