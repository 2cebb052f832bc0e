"""FST against RL only and GEPA only on the quickstart's rulebook, at the same total rollouts, over several seeds.

    python benchmarks/nano_comparison.py run --seeds 0 1 2 3 4 --out RESULTS [--jobs 1] [KEY=VALUE …]
    python benchmarks/nano_comparison.py report RESULTS [--figure docs/nano-comparison.png]

`run` writes one JSON file a seed with the evaluation rows of each method as it finishes; `report` needs only those files.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from seeds import side_by_side

from fastslow.study.arms import LOOKS, Arm
from fastslow.study.curves import Curve
from fastslow.study.figures import draw_curves
from fastslow.study.measures import Comparison
from fastslow.study.report import show
from fastslow.study.sentences import findings


def run_seed(seed: int, out: Path, overrides: list[str]) -> None:
    """The three methods in a folder that goes away; their evaluations stay."""
    from fastslow import RunFolder, load_recipe
    from fastslow.study.quickstart import RECIPE
    from fastslow.study.training import METHODS, run_method

    recipe = load_recipe(RECIPE, [*overrides, f"seed={seed}"])
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as work:
        for method in METHODS:
            results[method] = RunFolder.open(run_method(method, recipe, Path(work))).rows("evals")
            out.mkdir(parents=True, exist_ok=True)
            (out / f"seed-{seed}.json").write_text(json.dumps(results))


def report(folder: Path, figure: Path | None) -> None:
    """Print what the methods cost and reached, over seeds; with `figure`, draw their curves."""
    found = {int(path.stem.removeprefix("seed-")): json.loads(path.read_text()) for path in folder.glob("seed-*.json")}
    methods = [method for method in LOOKS if all(method in rows for rows in found.values())]
    arms = [
        Arm(
            LOOKS[method].name,
            method,
            {seed: Curve.from_rows(rows[method], method) for seed, rows in sorted(found.items())},
        )
        for method in methods
    ]
    comparison = Comparison.of(arms)
    show(comparison, Console())
    print(*findings(comparison), sep="\n")
    if figure is not None:
        curves = {arm.method: list(arm.curves.values()) for arm in arms}
        draw_curves(
            curves, figure, f"a hidden rulebook, model nano, {len(found)} seeds; bands: 95% intervals over seeds"
        )


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
        start = [sys.executable, __file__, "run", "--out", str(options.out), "--seeds"]
        side_by_side([[*start, str(seed), "--", *options.overrides] for seed in options.seeds], options.jobs)


if __name__ == "__main__":
    main()
