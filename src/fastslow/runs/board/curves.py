"""What the list of runs, the curves and the spending show of a run, from its recipe and its logs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from fastslow.base.errors import RecipeError, cause
from fastslow.recipe import read_mapping
from fastslow.runs.folder import TAGS
from fastslow.runs.ledger import PURPOSES, TRAINING
from fastslow.runs.reading import MOST, Place, column, mapping, number, rounded, text

Rows = Sequence[Mapping[str, Any]]
NUMBERS = ("reward", "kl", "entropy", "response_length", "truncated", "zero_variance", "grad_norm", "contexts")
FORMER = {"truncated": ("cut_off",)}
"""Former names of columns of metrics.jsonl."""
SPENT = {"slow": "rollouts_slow", "fast": "rollouts_fast", "evaluation": "rollouts_evaluation"}
AMOUNTS = ("rollouts", "tokens", "seconds", "cost")
SPARK = 60
"""Points of the small curve."""
SILENT = 600.0
"""Seconds without a new file after which a run that says it is running is called silent."""
LARGEST_RECIPE = 100_000
"""Bytes of a recipe that are read."""


def curves(metrics: Rows, evals: Rows, ledger: Rows) -> dict[str, Any]:
    """Training by step and evaluations by label, each with the four costs to plot them against."""
    tokens = _tokens_by_step(ledger)
    phases = [mapping(row.get("phases")) for row in metrics]
    names = list(dict.fromkeys(name for row in phases for name in row))
    parts = [mapping(row.get("parts")) for row in metrics]
    part_names = list(dict.fromkeys(name for row in parts for name in row))
    took = [(number(row.get("seconds")) or 0.0) for row in metrics]
    training = [total - (number(phase.get("evaluation")) or 0.0) for total, phase in zip(took, phases, strict=True)]
    steps = column(metrics, "step")
    return {
        "training": {
            "steps": steps,
            "rollouts": [training_rollouts(row) for row in metrics],
            "tokens": [tokens.get(int(step)) if step is not None else None for step in steps],
            "seconds": [rounded(total) for total in accumulate(training)],
            **{name: column(metrics, name, *FORMER.get(name, ())) for name in NUMBERS},
            "phases": {name: [rounded(row.get(name)) or 0 for row in phases] for name in names},
            "parts": {name: [number(row.get(name)) for row in parts] for name in part_names},
            "purposes": {name: column(metrics, key) for name, key in SPENT.items()},
        },
        "evaluation": _evaluation(evals),
        "cycles": _marks(metrics, "cycle"),
        "stages": _marks(metrics, "stage"),
    }


def training_rollouts(row: Mapping[str, Any]) -> float:
    """Rollouts of both loops so far, at a row of a log."""
    return (number(row.get("rollouts_slow")) or 0) + (number(row.get("rollouts_fast")) or 0)


def _evaluation(rows: Rows) -> dict[str, Any]:
    """Columns by label, such as the best context and the seed text."""
    labels = list(dict.fromkeys(label for row in rows for label in mapping(row.get("results"))))
    found = {}
    for label in labels:
        pairs = [(row, mapping(mapping(row.get("results")).get(label))) for row in rows]
        measured = [row for row, result in pairs if result]
        results = [result for _, result in pairs if result]
        found[label] = {
            "steps": column(measured, "step"),
            "rollouts": [training_rollouts(row) for row in measured],
            **{name: column(measured, name) for name in ("tokens", "seconds")},
            **{name: column(results, name) for name in ("mean", "low", "high", "kl")},
        }
    return found


def _marks(rows: Rows, key: str) -> list[list[Any]]:
    """Where a value first appears: the index of the row, and the value."""
    marks: list[list[Any]] = []
    for index, row in enumerate(rows):
        value = row.get(key)
        if isinstance(value, int | str) and (not marks or marks[-1][1] != value):
            marks.append([index, value])
    return marks


def _tokens_by_step(ledger: Rows) -> dict[int, float]:
    total, found = 0.0, dict[int, float]()
    for row in ledger:
        spent = mapping(row.get("spent"))
        total += sum(_entry(spent.get(name))["tokens"] for name in spent if name in TRAINING and name != "reflection")
        if isinstance(step := number(row.get("step")), int):
            found[step] = total
    return found


# Spending --------------------------------------------------------------------------------------------------------------


def spending(metrics: Rows, ledger: Rows, totals: Mapping[str, Any]) -> dict[str, Any]:
    """Amounts by purpose: summed up over the steps, in total, and by cycle.

    Older runs have no ledger.jsonl: for them the rollouts in metrics.jsonl make the curve, and ledger.json the totals.
    """
    if not ledger:
        return {
            "steps": column(metrics, "step"),
            "amounts": {"rollouts": {name: column(metrics, key) for name, key in SPENT.items()}} if metrics else {},
            "totals": {purpose: _entry(totals[purpose]) for purpose in PURPOSES if totals.get(purpose)},
            "cycles": [],
        }
    spent = [mapping(row.get("spent")) for row in ledger]
    used = [purpose for purpose in PURPOSES if any(each.get(purpose) for each in spent)]
    entries = {purpose: [_entry(each.get(purpose)) for each in spent] for purpose in used}
    return {
        "steps": column(ledger, "step"),
        "amounts": {
            name: {
                purpose: [rounded(total) for total in accumulate(entry[name] for entry in found)]
                for purpose, found in entries.items()
            }
            for name in AMOUNTS
        },
        "totals": {purpose: _summed(found) for purpose, found in entries.items()},
        "cycles": _by_cycle(ledger),
    }


def _entry(value: Any) -> dict[str, Any]:
    entry = mapping(value)
    names = ("rollouts", "seconds", "cost", "reused", "calls", "prompt_tokens", "completion_tokens")
    found: dict[str, Any] = {name: number(entry.get(name)) or 0 for name in names}
    found["tokens"] = found["prompt_tokens"] + found["completion_tokens"]
    found["faults"] = {str(name): number(count) or 0 for name, count in mapping(entry.get("faults")).items()}
    return found


def _summed(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    faults: Counter[str] = Counter()
    for entry in entries:
        faults.update(entry["faults"])
    return {name: dict(faults) if name == "faults" else sum(entry[name] for entry in entries) for name in entries[0]}


def _by_cycle(ledger: Rows) -> list[dict[str, Any]]:
    cycles: dict[Any, dict[str, Any]] = {}
    for row in ledger:
        which = number(row.get("cycle"))
        empty: dict[str, Any] = {"cycle": which, "rollouts": Counter(), "cost": 0, "seconds": 0}
        cycle = cycles.setdefault(which, empty)
        for purpose, value in mapping(row.get("spent")).items():
            entry = _entry(value)
            cycle["rollouts"][purpose] += entry["rollouts"]
            cycle["cost"] += entry["cost"]
            cycle["seconds"] += entry["seconds"]
    return list(cycles.values())


# The list of runs ------------------------------------------------------------------------------------------------------


def read_recipe(place: Place) -> tuple[dict[str, Any], str]:
    """The recipe as plain data and as its text; empty where it is missing or damaged."""
    path = place.file("recipe.yaml")
    if path is None:
        return {}, ""
    try:
        data = read_mapping(path, LARGEST_RECIPE)
        return data, path.read_text(errors="replace")
    except (RecipeError, OSError) as error:
        place.notes["recipe.yaml"] = f"skipped: {cause(error)}"
        return {}, ""


def summary(place: Place, recipe: Mapping[str, Any], metrics: Rows, evals: Rows, ledger: Rows) -> dict[str, Any]:
    state = place.json("run.json")
    written = max(place.stamp(name)[0] for name in ("run.json", "metrics.jsonl", "evals.jsonl", "contexts")) / 1e9
    status = state.get("status")
    if status == "running" and time.time() - written > SILENT:
        status = "silent"
    rewards = [value for row in metrics if (value := number(row.get("reward"))) is not None]
    slow, tags = mapping(recipe.get("slow")), place.json(TAGS).get("tags")
    return {
        "name": place.name,
        "status": status if isinstance(status, str) else "unknown",
        "error": reason(state),
        "started": text(state.get("started")),
        "written": written,
        "method": text(recipe.get("method")),
        "optimizer": _name(mapping(recipe.get("fast")).get("optimizer")),
        "model": _name(recipe.get("model")).rstrip("/").rpartition("/")[2],
        "task": _task(recipe),
        "seed": number(recipe.get("seed")),
        "tags": [text(tag) for tag in tags[:MOST]] if isinstance(tags, list) else [],
        "step": _step(state, metrics, evals, ledger),
        "steps": number(slow.get("steps")),
        "budget": number(recipe.get("rollouts")),
        "reward": rounded(rewards[-1]) if rewards else None,
        "spark": thinned(rewards, SPARK),
        "validation": _validation(evals),
        # With frozen weights there is no row for a step.
        "rollouts": training_rollouts(metrics[-1]) if metrics else _spent(evals, ledger),
        "notes": dict(place.notes),
    }


def reason(state: Mapping[str, Any]) -> str:
    """Why a run ended early, without the name of the interruption, which its status says."""
    error = text(state.get("error"))
    if state.get("status") != "interrupted":
        return error
    return error.removeprefix("Stopped: ").removeprefix("KeyboardInterrupt:").strip() or "Ctrl+C"


def _step(state: Mapping[str, Any], metrics: Rows, evals: Rows, ledger: Rows) -> float:
    """How far a run has come, by whatever says so: with frozen weights only the ledger and the checkpoints do."""
    known = [number(row.get("step")) for rows in (metrics, evals, ledger) for row in rows[-1:]]
    known.append(number(state.get("checkpoint")))
    if state.get("status") == "finished":
        known.append(number(state.get("steps")))
    return max(filter(None, known), default=0)


def _spent(evals: Rows, ledger: Rows) -> float:
    """Rollouts of both loops; older runs have no ledger.jsonl."""
    spent = (mapping(row.get("spent")) for row in ledger)
    booked = sum(_entry(each.get(name))["rollouts"] for each in spent for name in TRAINING if name in each)
    return max(booked, training_rollouts(evals[-1]) if evals else 0)


def thinned(values: Sequence[float], count: int) -> list[float]:
    """Means over equal stretches, where there are more values than points."""
    if len(values) <= count:
        return [round(value, 4) for value in values]
    edges = [round(index * len(values) / count) for index in range(count + 1)]
    parts = (values[start:stop] for start, stop in pairwise(edges))
    return [round(sum(part) / len(part), 4) for part in parts]


def _validation(rows: Rows) -> dict[str, Any] | None:
    results = mapping(rows[-1].get("results")) if rows else {}
    for label in ("best context", "seed", *results):
        if found := mapping(results.get(label)):
            return {"label": label, **{key: rounded(found.get(key)) for key in ("mean", "low", "high")}}
    return None


def _name(part: Any) -> str:
    """Of a model or an optimizer, in its short or its long form."""
    return text(mapping(part).get("name")) or text(part)


def _task(recipe: Mapping[str, Any]) -> str:
    """The names of the tasks, with the option that tells one family's tasks apart."""
    tasks = recipe.get("stages") or recipe.get("task")
    names = []
    for task in tasks[:MOST] if isinstance(tasks, list) else [tasks]:
        options = mapping(mapping(task).get("task") or task)
        name, book = text(options.get("name")) or text(task), text(options.get("book"))
        names.append(f"{name}/{book}" if book else name)
    return ", ".join(names)
