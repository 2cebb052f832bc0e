"""Kills a run with SIGKILL at random moments, resumes it, and compares the result with that of an uninterrupted run.

    python benchmarks/resume.py [--kills 10] [--seed 0]

Every kill is a run of its own: it is killed at a moment drawn uniformly from the time its training takes, resumed, killed
and resumed a second time, and must then equal the uninterrupted run in metrics, evaluations, contexts, ledger and weights.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from helpers import EXAMPLE, fastslow, outcome  # noqa: E402


def killed_after(delay: float, folder: Path, *arguments: str | Path) -> bool:
    """Start a run, kill it `delay` seconds after it begins to write; false where it was done before that."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fastslow", "train", *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    process.stdout.readline()  # "run …: begins" or "resumes": set-up is over
    time.sleep(delay)
    os.kill(process.pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    work = Path(tempfile.mkdtemp(prefix="fastslow-resume-"))
    try:
        alone = work / "alone"
        started = time.perf_counter()
        fastslow("train", EXAMPLE, f"output.folder={alone}")
        expected = outcome(alone)
        rows = [float(row["seconds"]) for row in _metrics(alone)]
        length = sum(rows)
        print(f"an uninterrupted run: {time.perf_counter() - started:.1f} s, of them {length:.2f} s training")
        equal = 0
        for number in range(options.kills):
            folder = work / f"killed-{number}"
            delays = draw.uniform(0, length), draw.uniform(0, length)
            first = killed_after(delays[0], folder, EXAMPLE, f"output.folder={folder}")
            reached = len(_metrics(folder))
            second = killed_after(delays[1], folder, "--resume", folder)
            again = len(_metrics(folder))
            done = fastslow("train", "--resume", folder)
            same = done.returncode == 0 and outcome(folder) == expected
            equal += same
            print(
                f"kill {number + 1}: after {delays[0]:.2f} s (step {reached}{'' if first else ', already done'}), then after "
                f"{delays[1]:.2f} s (step {again}{'' if second else ', already done'}): {'equal' if same else 'DIFFERENT'}",
                flush=True,
            )
        print(f"{equal} of {options.kills} equal")
        sys.exit(equal != options.kills)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _metrics(folder: Path) -> list[dict]:
    from fastslow.runs.folder import RunFolder

    return RunFolder.open(folder).rows("metrics")


if __name__ == "__main__":
    main()
