"""One line per run: its status, what it trains, how far it is and what it has spent."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import yaml

from fastslow.runs.board.curves import Rows, training_rollouts
from fastslow.runs.reading import Place, mapping, number, rounded

SPARK = 60
"""Points of the small curve."""
SILENT = 600.0
"""Seconds without a new file after which a run that says it is running is called silent."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_recipe(place: Place) -> tuple[dict[str, Any], str]:
    """The recipe as plain data and as its text; empty where it is missing or damaged."""
    path = place.file("recipe.yaml")
    if path is None:
        return {}, ""
    try:
        text = path.read_text(errors="replace")
        data = yaml.load(text, LOADER)
    except (OSError, yaml.YAMLError, RecursionError) as error:
        place.notes["recipe.yaml"] = f"skipped: not readable as YAML ({type(error).__name__})"
        return {}, ""
    return (data if isinstance(data, dict) else {}), text


def summary(place: Place, recipe: Mapping[str, Any], metrics: Rows, evals: Rows) -> dict[str, Any]:
    state = place.json("run.json")
    last = metrics[-1] if metrics else evals[-1] if evals else {}
    written = max(place.stamp(name)[0] for name in ("run.json", "metrics.jsonl", "evals.jsonl", "contexts")) / 1e9
    status = state.get("status")
    if status == "running" and time.time() - written > SILENT:
        status = "silent"
    rewards = [value for row in metrics if (value := number(row.get("reward"))) is not None]
    slow = mapping(recipe.get("slow"))
    return {
        "name": place.name,
        "status": status if isinstance(status, str) else "unknown",
        "error": str(state.get("error") or ""),
        "started": str(state.get("started") or ""),
        "written": written,
        "method": str(recipe.get("method") or ""),
        "optimizer": _name(mapping(recipe.get("fast")).get("optimizer")),
        "model": _model(recipe),
        "task": _task(recipe),
        "seed": number(recipe.get("seed")),
        "step": number(last.get("step")) or 0,
        "steps": number(slow.get("steps")),
        "budget": number(recipe.get("rollouts")),
        "reward": rounded(rewards[-1]) if rewards else None,
        "spark": thinned(rewards, SPARK),
        "validation": _validation(evals),
        "rollouts": training_rollouts(last),
        "notes": dict(place.notes),
    }


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


def _model(recipe: Mapping[str, Any]) -> str:
    return _name(recipe.get("model")).rstrip("/").rpartition("/")[2]


def _name(part: Any) -> str:
    """Of a model or an optimizer, in its short or its long form."""
    return str(mapping(part).get("name") or part or "")


def _task(recipe: Mapping[str, Any]) -> str:
    """The names of the tasks, with the option that tells one family's tasks apart."""
    tasks = recipe.get("stages") or recipe.get("task")
    names = []
    for task in tasks if isinstance(tasks, list) else [tasks]:
        options = mapping(mapping(task).get("task") or task)
        name = options.get("name") or task or ""
        book = options.get("book")
        names.append(f"{name}/{book}" if isinstance(book, str) else str(name))
    return ", ".join(names)
