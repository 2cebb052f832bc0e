"""How fast the quickstart's recipe trains here: slow steps a minute, and where the seconds go.

python benchmarks/nano_speed.py [--steps 20] [KEY=VALUE …]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections import Counter
from pathlib import Path

from fastslow import RunFolder, load_recipe, train
from fastslow.study.quickstart import RECIPE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()
    recipe = load_recipe(RECIPE, [f"slow.steps={options.steps}", "evaluation.every=0", *options.overrides])
    with tempfile.TemporaryDirectory() as work:
        rows = RunFolder.open(train(recipe, Path(work) / "run")).rows("metrics")
    seconds: Counter[str] = Counter()
    for row in rows:
        seconds.update(row["phases"])
    slow = sum(seconds[phase] for phase in ("sampling", "grading", "update"))
    rollouts = recipe.slow.problems * recipe.slow.group
    print(f"{len(rows)} steps of {rollouts} rollouts, {rows[-1]['rollouts_fast']} rollouts of the fast loop, "
          f"{len(os.sched_getaffinity(0))} cores")  # fmt: skip
    for phase in ("sampling", "grading", "update", "fast"):
        print(f"{phase:9} {seconds[phase]:7.1f} s  {seconds[phase] / len(rows):6.2f} s a step")
    print(
        f"slow steps a minute: {60 * len(rows) / slow:.1f}; with the fast loop: {60 * len(rows) / seconds.total():.1f}"
    )


if __name__ == "__main__":
    main()
