"""What helps a slow loop that falls: RL on nano with a learning rate that is far too high, several answers to a noticed fall.

    python -m benchmarks.falls run --out RESULTS [--seeds 0 1 2 3] [--answers none slower …] [--rates 1e-3] [--steps 50]
    python -m benchmarks.falls report RESULTS

`run` writes one JSON file for each seed, rate and answer: the reward of every step, when a fall was noticed, and validation
rewards at the end, of the last checkpoint and of the one that `fastslow export` takes. `report` needs only those files.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

LAST = 10
"""Steps whose mean training reward is reported."""


def _slower(record: Any, before: float, now: float) -> None:
    """A smaller step from the fallen weights; what was measured so far is no reason for another one."""
    course = record.state.course
    course.rate, course.points, course.peaks = course.rate * 0.25, course.points[-1:], ()


ANSWERS: dict[str, Callable[[], Any]] = {
    "none": lambda: patch("fastslow.slow.steady.FALLEN", float("inf")),
    "slower": lambda: patch("fastslow.runs.recorder.Recorder.fell", _slower),
    "restore": lambda: patch("fastslow.slow.steady.SLOWER", 1.0),
    "both": lambda: patch("fastslow.slow.steady.SLOWER", 0.5),
}
"""Nothing; a quarter of the learning rate; the weights of the best checkpoint; these and half the learning rate."""


def run_one(seed: int, rate: str, answer: str, steps: int) -> dict[str, Any]:
    from fastslow import RunFolder, load_recipe
    from fastslow.launch.evaluate import evaluate_run
    from fastslow.launch.start import train
    from fastslow.study.studies import RECIPE

    settings = [
        *("method=rl", "task.told=4", "slow.kl=0", f"slow.learning_rate={rate}", f"slow.steps={steps}", f"seed={seed}"),
        *("evaluation.every=0", "evaluation.problems=32", "output.keep_checkpoints=1"),
    ]
    with tempfile.TemporaryDirectory() as work, ANSWERS[answer]():
        folder = train(load_recipe(RECIPE, settings), Path(work) / "run")
        run = RunFolder.open(folder)
        rewards = [row["reward"] for row in run.rows("metrics")]
        rates = [row["learning_rate"] for row in run.rows("metrics")]
        ends = run.checkpoints.steps()
        validation = {step: evaluate_run(folder, step=step, k=2)["seed"].mean for step in ends}
        state = json.loads((run.checkpoints.get(ends[-1]) / "state.json").read_text())["course"]
    return {"rewards": rewards, "rates": rates, "validation": validation, "course": state}


def report(folder: Path) -> None:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        found.setdefault((data["rate"], data["answer"]), []).append(data)
    print(
        "| learning rate | answer | seeds | first steps | last steps | validation at the end |\n|---|---|---|---|---|---|"
    )
    for (rate, answer), runs in found.items():
        columns = [
            [fmean(run["rewards"][:3]) for run in runs],
            [fmean(run["rewards"][-LAST:]) for run in runs],
            [run["validation"][max(run["validation"], key=int)] for run in runs],
        ]
        shown = (f"{fmean(each):.2f} ± {stdev(each) if len(each) > 1 else 0:.2f}" for each in columns)
        print(f"| {rate} | {answer} | {len(runs)} | {' | '.join(shown)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    run.add_argument("--answers", nargs="+", choices=ANSWERS, default=list(ANSWERS))
    run.add_argument("--rates", nargs="+", default=["1e-3"])
    run.add_argument("--steps", type=int, default=50)
    commands.add_parser("report").add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.command == "report":
        return report(options.folder)
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for rate in options.rates:
            for answer in options.answers:
                path = options.out / f"{rate}-{answer}-{seed}.json"
                if not path.exists():
                    data = run_one(seed, rate, answer, options.steps)
                    path.write_text(json.dumps({"seed": seed, "rate": rate, "answer": answer, **data}))
    return None


if __name__ == "__main__":
    main()
