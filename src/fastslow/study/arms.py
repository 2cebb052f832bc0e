"""Runs sorted into arms, and how each arm is shown. Runs that differ only in their seed, their length and what fits them to a
machine are one arm of a comparison."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fastslow.base.errors import FastSlowError, RunError
from fastslow.base.text import without_controls
from fastslow.recipe import GRADING_SETTINGS, LENGTH_SETTINGS, MACHINE_SETTINGS, flat, removed_settings
from fastslow.recipe.former import usual
from fastslow.recipe.model import Method
from fastslow.recipe.parts import SLOTS
from fastslow.runs.folder import RunFolder
from fastslow.study.curves import Curve, Estimate, over_seeds, read_curve

OPTIMIZER = "fast.optimizer.name"
MOST_NAMED = 2
"""Settings that an arm is named by; where more differ, one of them, if it tells the arms apart."""
MEASURE = ("task", "stages", *(f"evaluation.{name}" for name in ("problems", "k", "temperature", "top_p")))
"""Settings that must agree for rewards to be comparable."""
ALIKE = (*LENGTH_SETTINGS, *MACHINE_SETTINGS, *GRADING_SETTINGS, "seed", "sampling.backend", "evaluation.divergence")
"""Settings in which runs of one arm may differ: they do not change what is learnt from a rollout."""


@dataclass(frozen=True)
class Look:
    """How a method is shown: its name, what it does in a few words, a colour and a marker."""

    name: str
    does: str
    colour: str
    marker: str


# The palette of Okabe and Ito, which is safe for every kind of colour vision.
LOOKS: dict[Method, Look] = {
    "fst": Look("FST", "evolves the prompt and trains the weights", "#D55E00", "o"),
    "rl": Look("RL only", "trains the weights", "#0072B2", "s"),
    "gepa": Look("GEPA only", "evolves the prompt", "#009E73", "^"),
    "distill": Look("FST-distill", "trains what the prompt does into the weights", "#CC79A7", "D"),
}
BASE = Look("base model", "", "#000000", "X")
"""The untrained model."""
LINES = ("-", "--", ":", "-.")
"""Line styles of arms with the same method; they share its colour where other methods are shown too."""
MORE_COLOURS = ("#E69F00", "#000000", "#56B4E9")
"""Colours of the second and later arms where all arms have the same method."""


@dataclass(frozen=True)
class Arm:
    """One way of training, over its seeds."""

    label: str
    method: Method
    curves: Mapping[int, Curve]
    """By seed."""
    entropies: Mapping[int, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """By seed: step and entropy of the policy, where it was trained."""
    folders: Mapping[int, Path] = field(default_factory=dict)
    variant: int = 0
    """Index among the arms that share this look."""
    own_look: Look | None = None
    """Overrides the look of its method."""

    @property
    def look(self) -> Look:
        return self.own_look or LOOKS[self.method]

    @property
    def line(self) -> str:
        return LINES[self.variant % len(LINES)]

    @property
    def caption(self) -> str:
        return f"{self.label}: {self.look.does}" if self.look.does else self.label

    @property
    def runs(self) -> list[RunFolder]:
        return [RunFolder.open(folder) for folder in self.folders.values()]

    def each(self, value: Callable[[Curve], float]) -> dict[int, float]:
        """A number of every curve, by seed."""
        return {seed: value(curve) for seed, curve in self.curves.items()}

    def mean(self, value: Callable[[Curve], float], ceiling: float = math.inf) -> Estimate:
        """A number of the curves, which is not below 0, over seeds."""
        return over_seeds(list(self.each(value).values()), 0.0, ceiling)


def gather(folders: Sequence[str | Path], rollouts: int | None = None) -> tuple[list[Arm], list[str]]:
    """Sort runs into arms, methods in their usual order; also returns remarks for the reader. `rollouts` truncates every run
    at so many rollouts."""
    runs, remarks = [], []
    for folder in dict.fromkeys(Path(folder) for folder in folders):
        run = RunFolder.open(folder)
        if run.rows("evals"):
            runs.append(run)
        else:
            remarks.append(f"'{folder}' has no evaluations yet and was skipped")
    if not runs:
        raise RunError("none of the runs has an evaluation yet; train them with evaluation.every above 0")
    settings = _settings(runs)
    _require_same_measure(settings)
    groups: dict[tuple[Any, ...], list[RunFolder]] = {}
    for run in runs:
        chosen = _arm_settings(settings[run.path])
        groups.setdefault(tuple(sorted((key, repr(value)) for key, value in chosen.items())), []).append(run)
    models = sorted({run.recipe.model.name for run in runs})
    if len(models) > 1:
        named = ", ".join(models)
        remarks.append(f"the runs start from {len(models)} models ({named}); KL is from each run's own model")
    sorted_groups = sorted(groups.values(), key=lambda members: list(LOOKS).index(members[0].recipe.method))
    arms: list[Arm] = []
    for members in sorted_groups:
        method = members[0].recipe.method
        alike = [group for group in sorted_groups if group[0].recipe.method == method]
        variant = alike.index(members)
        choices = [_arm_settings(settings[group[0].path]) for group in alike]
        own = choices[variant]
        differing = [key for key in _differences(choices) if key != "model.name"]
        shown = _telling(differing, choices)
        described = own[OPTIMIZER] if shown == [OPTIMIZER] else ", ".join(f"{key}={own.get(key)}" for key in shown)
        start = f" from {own['model.name']}" if len(models) > 1 else ""
        label = without_controls(LOOKS[method].name + start + (f" ({described})" if described else ""))
        alone = len(alike) == len(sorted_groups) and 0 < variant <= len(MORE_COLOURS)
        look = replace(LOOKS[method], colour=MORE_COLOURS[variant - 1]) if alone else None
        if shown != differing:
            others = ", ".join(f"{key}={own.get(key)}" for key in differing if key not in shown)
            remarks.append(f"{label} has, besides: {others}")
        arms.append(make_arm(label, method, members, variant, look, rollouts))
    for arm in arms:
        for run, curve in zip(arm.runs, arm.curves.values(), strict=True):
            remarks += run.truncated()
            if (status := run.info.get("status")) != "finished":
                shown_to = f"shown up to step {int(curve.steps[-1])} of {run.recipe.slow.steps}"
                remarks.append(f"{arm.label}, seed {run.recipe.seed}: not finished ({status}); {shown_to}")
    return arms, remarks


def make_arm(
    label: str,
    method: Method,
    members: Sequence[RunFolder],
    variant: int = 0,
    look: Look | None = None,
    rollouts: int | None = None,
) -> Arm:
    """Make one arm of runs that differ only in their seed."""
    curves: dict[int, Curve] = {}
    folders: dict[int, Path] = {}
    entropies: dict[int, tuple[tuple[int, float], ...]] = {}
    for run in sorted(members, key=lambda run: run.recipe.seed):
        seed = run.recipe.seed
        if seed in curves:
            raise FastSlowError(
                f"'{folders[seed]}' and '{run.path}' have the same seed and do not differ in any setting that "
                f"{LOOKS[method].name} uses; remove one of them"
            )
        curve = read_curve(run.path)
        if rollouts is not None and not (curve := curve.within(rollouts)).rewards:
            raise FastSlowError(
                f"'{run.path}' has no evaluation within {rollouts:,} rollouts; raise --rollouts or remove this run"
            )
        curves[seed], folders[seed] = curve, run.path
        rows = [row for row in run.rows("metrics") if rollouts is None or row["step"] <= curve.steps[-1]]
        entropies[seed] = tuple((row["step"], row["entropy"]) for row in rows if row.get("entropy") is not None)
    return Arm(label, method, curves, entropies, folders, variant, look)


def _settings(runs: Sequence[RunFolder]) -> dict[Path, dict[str, Any]]:
    """The settings of every run, also those that recipes no longer have where one of the runs uses them."""
    found = {run.path: flat(run.recipe.model_dump(mode="json")) for run in runs}
    removed = {run.path: removed_settings(run.path / "recipe.yaml") for run in runs}
    for path, each in found.items():
        for key in dict.fromkeys(key for used in removed.values() for key in used):
            each[key] = removed[path].get(key, each.get(key, usual(key)))
    return found


def _arm_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that define an arm: those its method uses, except `ALIKE`."""
    unused = {"rl": "fast.", "gepa": "slow."}.get(settings["method"])
    return {
        key: value
        for key, value in settings.items()
        if key not in ALIKE and not key.startswith("output.")
        if key == "slow.problems" or not unused or not key.startswith(unused)  # GEPA's cycles look ahead at so many
    }


def _differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The settings that differ; of parts that differ, such as their optimizers, not the options."""
    keys = dict.fromkeys(key for each in settings for key in each)
    found = [key for key in keys if any(each.get(key) != settings[0].get(key) for each in settings)]
    parts = [key for key in SLOTS if {f"{key}.name", f"{key}.kind"} & set(found)]
    return [key for key in found if key.endswith((".name", ".kind")) or key.rpartition(".")[0] not in parts]


def _telling(keys: list[str], settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of settings that differ, those that name an arm: one that tells all arms apart, where more than `MOST_NAMED` differ."""
    if len(keys) > MOST_NAMED:
        for key in sorted(keys, key=lambda key: key != OPTIMIZER):
            if len({repr(each.get(key)) for each in settings}) == len(settings):
                return [key]
    return keys


def _require_same_measure(settings: Mapping[Path, Mapping[str, Any]]) -> None:
    (first, reference), *others = settings.items()
    for path, each in others:
        for key in _differences([reference, each]):
            if any(key == name or key.startswith(f"{name}.") for name in MEASURE):
                raise FastSlowError(
                    f"the rewards of these runs are not comparable: {key} is {reference.get(key)} in '{first}' and "
                    f"{each.get(key)} in '{path}'; compare runs with the same task and the same evaluation settings"
                )
