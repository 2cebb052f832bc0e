"""Training the runs that are compared: finished ones are kept, interrupted ones resumed, methods compared at equal rollouts.
The runs of a study are jobs, each in a process of its own, several at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.base.errors import FastSlowError, RunError
from fastslow.launch.assembly import open_snapshot
from fastslow.launch.export import save_policy
from fastslow.recipe import MACHINE_SETTINGS, Recipe, build_recipe, dump_recipe, flat, removed_settings
from fastslow.recipe.model import Method
from fastslow.recipe.parts import set_key
from fastslow.recipe.read import read_setting
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.study.curves import Curve, read_curve

Progress = Callable[[str, str], None]
"""Called with the name of a run and its state."""
POLL = 0.5
"""Seconds between checks of the running processes."""


@dataclass(frozen=True)
class Variant:
    """One kind of run, trained once for every seed. A name means the same settings in every study, so studies share runs."""

    name: str
    """Names its folders."""
    label: str
    """Names it in tables and figures."""
    overrides: tuple[str, ...] = ()
    """The settings it changes, as dotted KEY=VALUE."""
    after: Variant | None = None
    """It starts from the final weights of this variant, with the same seed."""
    equal_to: Variant | None = None
    """Its budget is the rollouts that this FST variant spent, with the same seed (`at_equal_rollouts`)."""


@dataclass(frozen=True)
class Job:
    """One run of a study: a variant with a seed."""

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
    def fst(self) -> Job | None:
        """The FST run whose rollouts are this one's budget."""
        return Job(self.variant.equal_to, self.seed, self.out) if self.variant.equal_to else None

    @property
    def needs(self) -> list[Job]:
        """The runs that must finish before this one starts."""
        return [job for job in (self.before, self.fst) if job is not None]

    @property
    def ready(self) -> bool:
        return all(finished(job.folder) for job in self.needs)

    @property
    def weights(self) -> Path:
        """Where the runs that start from this one find its weights."""
        return self.out / "weights" / self.name

    def recipe(self, base: Recipe) -> Recipe:
        """The base recipe with the variant's settings, the seed, and what the job takes from the runs it needs."""
        data: dict[str, Any] = base.model_dump(mode="json")
        for override in (*self.variant.overrides, f"seed={self.seed}"):
            set_key(data, *read_setting(override))
        if data["stages"]:  # in place of the task and its steps
            data["task"] = None
            del data["slow"]["steps"]
        if self.before is not None:
            data["model"]["name"] = str(self.before.weights.absolute())
        data["slow"]["patience"] = None  # methods are compared over the same steps
        data["output"]["folder"] = str(self.folder.absolute())
        recipe = build_recipe(data)
        return at_equal_rollouts(recipe, read_curve(self.fst.folder)) if self.fst else recipe


def jobs_of(variants: Sequence[Variant], seeds: Sequence[int], out: Path) -> list[Job]:
    """Every run of some variants, each behind the runs it needs."""
    jobs = [Job(variant, seed, out) for seed in seeds for variant in variants]
    return list(dict.fromkeys(each for job in jobs for each in (*job.needs, job)))


def run_jobs(jobs: Sequence[Job], base: Recipe, parallel: int, progress: Progress) -> None:
    """Run the jobs that are not finished. After a failure no further job is started; those that run are waited for."""
    _refuse_other_settings([job for job in jobs if job.ready], base)
    waiting = [job for job in jobs if not finished(job.folder)]
    for job in jobs:
        progress(job.name, "waiting" if job in waiting else "finished")
    running: dict[Job, subprocess.Popen[bytes]] = {}
    failed: list[Job] = []
    try:
        while running or (waiting and not failed):
            ready = [job for job in waiting if job.ready]
            for job in [] if failed else ready[: parallel - len(running)]:
                waiting.remove(job)
                running[job] = _start(job, base, parallel)
            time.sleep(POLL)
            for job, process in list(running.items()):
                if process.poll() is None:
                    progress(job.name, _last_line(job) or "starting")
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
    for job in failed:
        raise RunError(
            f"run '{job.folder}' failed: {_last_line(job)} (full log: '{job.log}'); fix the cause and repeat the command to "
            "resume"
        )
    _refuse_other_settings(jobs, base)


def _refuse_other_settings(jobs: Sequence[Job], base: Recipe) -> None:
    for job in jobs:
        if (job.folder / "run.json").exists():
            refuse_other_settings(job.recipe(base), job.folder, job.out)


def _start(job: Job, base: Recipe, parallel: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "fastslow", "train"]
    if (job.folder / "run.json").exists():
        command += ["--resume", str(job.folder)]
    else:
        if job.before is not None and not job.before.weights.exists():
            save_policy(open_snapshot(job.before.folder, "last"), job.before.weights)
        recipe = job.out / "recipes" / f"{job.name}.yaml"
        files.write_bytes(recipe, files.encode(dump_recipe(job.recipe(base))))
        command.append(str(recipe))
    threads = max(1, (os.cpu_count() or 1) // parallel)
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    job.log.parent.mkdir(exist_ok=True)
    with job.log.open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
        )


def _last_line(job: Job) -> str:
    text = job.log.read_text(errors="replace") if job.log.exists() else ""
    return text.strip().rpartition("\n")[2].strip()


METHODS: tuple[Method, ...] = ("fst", "rl", "gepa")
"""In the order they are run."""
UNTIL_SPENT = 100_000
"""More steps than any rollout budget lasts for."""


def at_equal_rollouts(recipe: Recipe, fst: Curve) -> Recipe:
    """The recipe with the rollouts that an FST run spent, fast-loop rollouts included, as its budget.

    This is what FST spent, not what its settings allow: with reused rollouts it spends less, and a cycle may end a little
    past its budget.
    """
    slow = recipe.slow.model_copy(update={"steps": UNTIL_SPENT, "patience": None})
    return recipe.model_copy(update={"rollouts": int(fst.rollouts[-1]), "slow": slow})


def finished(path: Path) -> bool:
    run = RunFolder(path).read_json("run.json")
    return run is not None and run["status"] == "finished"


def train_or_resume(recipe: Recipe, path: Path) -> Path:
    """Train a run to its end, from the start or from its newest checkpoint."""
    if finished(path):
        return path
    from fastslow.launch.start import resume, train  # not before the settings are checked: it imports torch

    return resume(path) if (path / "run.json").exists() else train(recipe, path)


def refuse_other_settings(recipe: Recipe, path: Path, study: Path) -> None:
    """Raise where a run of a study is there and was trained with another recipe."""
    if not (path / "run.json").exists():
        return
    there, here = flat(RunFolder.open(path).recipe.model_dump()), flat(recipe.model_dump())
    there |= removed_settings(path / "recipe.yaml")
    keys = [
        key
        for key in {**there, **here}
        if there.get(key) != here.get(key) and key not in (*MACHINE_SETTINGS, "slow.patience")
    ]
    if keys:
        differences = ", ".join(f"{key} is {there.get(key)} there and {here.get(key)} here" for key in keys)
        raise FastSlowError(
            f"'{study}' holds runs with other settings: {differences}; give the same settings to resume, or choose another "
            "folder"
        )


def refuse_wrong_base(recipe: Recipe, folder: Path) -> None:
    """Raise where a recipe cannot be run with several methods, each in a folder of its own."""
    if recipe.method != "fst":
        raise FastSlowError(f"method={recipe.method}, but a study runs several methods; remove this setting")
    if recipe.output.folder is not None:
        raise FastSlowError(f"output.folder={recipe.output.folder}, but the runs go to '{folder}'; remove this setting")
    if not recipe.evaluation.every:
        raise FastSlowError("evaluation.every=0, but a study compares evaluations; set it to 1 or more")


def check_methods(recipe: Recipe, folder: Path) -> None:
    """Raise where the recipe cannot be run with each method, or the folder holds anything but such runs of it."""
    refuse_wrong_base(recipe, folder)
    if recipe.stages:
        raise FastSlowError(
            "runs with stages cannot be compared at equal rollouts; train each method with its own recipe"
        )
    if folder.exists() and not folder.is_dir():
        raise FastSlowError(f"'{folder}' is a file; choose another folder")
    if not (folder / "fst" / "run.json").exists() and folder.exists() and any(folder.iterdir()):
        raise FastSlowError(
            f"'{folder}' is not empty and has no run in '{folder / 'fst'}'; choose another folder, or remove it"
        )
    for method in METHODS:
        if (folder / method / "run.json").exists():
            refuse_other_settings(_recipe_of(method, recipe, folder), folder / method, folder)


def run_method(method: Method, recipe: Recipe, folder: Path) -> Path:
    """Train the run of one method to its end, in its sub-folder; FST must have finished before the others."""
    return train_or_resume(_recipe_of(method, recipe, folder), folder / method)


def _recipe_of(method: Method, recipe: Recipe, folder: Path) -> Recipe:
    if method == "fst":
        return recipe
    return at_equal_rollouts(recipe.model_copy(update={"method": method}), read_curve(folder / "fst"))
