"""Bringing the runs of a study to their end: each in a process of its own, several at a time, from wherever they are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastslow.errors import RunError
from fastslow.recipe import Recipe, dump_recipe
from fastslow.runs import files
from fastslow.runs.export import save_policy
from fastslow.runs.snapshot import open_snapshot
from fastslow.study.finish import finished, refuse_other_settings
from fastslow.study.variants import Variant, recipe_of

Progress = Callable[[str, str], None]
"""Told of a run and how it stands."""
LOOK = 0.5
"""Seconds between looks at what runs."""


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    variant: Variant
    seed: int
    out: Path

    @property
    def name(self) -> str:
        return f"{self.variant.name}-seed{self.seed}"

    @property
    def folder(self) -> Path:
        return self.out / "runs" / self.name

    @property
    def log(self) -> Path:
        return self.out / "logs" / f"{self.name}.log"

    @property
    def before(self) -> Job | None:
        """The run whose weights this one starts from."""
        return Job(self.variant.after, self.seed, self.out) if self.variant.after else None

    @property
    def weights(self) -> Path | None:
        return self.out / "weights" / self.before.name if self.before else None

    def recipe(self, base: Recipe) -> Recipe:
        return recipe_of(self.variant, base, self.seed, self.folder, self.weights)


def jobs_of(variants: Sequence[Variant], seeds: Sequence[int], out: Path) -> list[Job]:
    """Every run of some variants, each after the one it starts from."""
    jobs: dict[Job, None] = {}
    for seed in seeds:
        for variant in variants:
            if variant.after is not None:
                jobs[Job(variant.after, seed, out)] = None
            jobs[Job(variant, seed, out)] = None
    return list(jobs)


def run_jobs(jobs: Sequence[Job], base: Recipe, parallel: int, progress: Progress) -> None:
    """Run what is not finished. A failure lets the others that run come to their end, and begins nothing more."""
    for job in jobs:
        if (job.folder / "run.json").exists():
            refuse_other_settings(job.recipe(base), job.folder, job.out)
    waiting = [job for job in jobs if not finished(job.folder)]
    for job in jobs:
        progress(job.name, "waiting" if job in waiting else "finished")
    running: dict[Job, subprocess.Popen[bytes]] = {}
    failed: list[Job] = []
    try:
        while running or (waiting and not failed):
            ready = [job for job in waiting if job.before is None or finished(job.before.folder)]
            for job in [] if failed else ready[: parallel - len(running)]:
                waiting.remove(job)
                running[job] = _start(job, base, parallel)
            time.sleep(LOOK)
            for job, process in list(running.items()):
                if process.poll() is None:
                    progress(job.name, last_line(job) or "starting")
                    continue
                del running[job]
                if process.returncode:
                    failed.append(job)
                progress(job.name, "failed" if process.returncode else "finished")
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait()
    if failed:
        raise RunError(
            f"run '{failed[0].folder}' failed: {last_line(failed[0])} (all it said is in '{failed[0].log}'); the same "
            "command goes on once that is mended"
        )


def _start(job: Job, base: Recipe, parallel: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fastslow", "train"]
    if (job.folder / "run.json").exists():
        command += ["--resume", str(job.folder)]
    else:
        if job.before is not None and job.weights is not None and not job.weights.exists():
            job.weights.parent.mkdir(parents=True, exist_ok=True)
            save_policy(open_snapshot(job.before.folder), job.weights)
        recipe = job.out / "recipes" / f"{job.name}.yaml"
        recipe.parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes(recipe, files.encode(dump_recipe(job.recipe(base))))
        command.append(str(recipe))
    threads = max(1, (os.cpu_count() or 1) // parallel)
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
        )


def last_line(job: Job) -> str:
    """The last thing a run has said."""
    try:
        lines = job.log.read_text(errors="replace").split("\n")
    except FileNotFoundError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
