"""Columns for the curves and the spending of a run, from its logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from fastslow.runs.board.logs import column, mapping, number, rounded
from fastslow.runs.ledger import FAST, PURPOSES, TRAINING

Rows = Sequence[Mapping[str, Any]]
NUMBERS = {
    "reward": ("reward",),
    "kl": ("kl",),
    "entropy": ("entropy",),
    "response_length": ("response_length",),
    "truncated": ("truncated", "cut_off"),
    "zero_variance": ("zero_variance",),
    "grad_norm": ("grad_norm",),
    "contexts": ("contexts",),
}
"""Columns of metrics.jsonl, with their former names."""
SPENT = {"slow": "rollouts_slow", "fast": "rollouts_fast", "evaluation": "rollouts_evaluation"}
AMOUNTS = ("rollouts", "tokens", "seconds", "cost")


def curves(metrics: Rows, evals: Rows, ledger: Rows) -> dict[str, Any]:
    """Training by step and evaluations by label, each with the four costs to plot them against."""
    tokens = _tokens_by_step(ledger)
    phases = [mapping(row.get("phases")) for row in metrics]
    names = list(dict.fromkeys(name for row in phases for name in row))
    took = [(number(row.get("seconds")) or 0.0) for row in metrics]
    training = [total - (number(parts.get("evaluation")) or 0.0) for total, parts in zip(took, phases, strict=True)]
    steps = column(metrics, "step")
    return {
        "training": {
            "steps": steps,
            "rollouts": [training_rollouts(row) for row in metrics],
            "tokens": [tokens.get(int(step)) if step is not None else None for step in steps],
            "seconds": [rounded(total) for total in accumulate(training)],
            **{name: column(metrics, *keys) for name, keys in NUMBERS.items()},
            "phases": {name: [rounded(row.get(name)) or 0 for row in phases] for name in names},
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
        pairs = [(row, result) for row, result in pairs if result]
        found[label] = {
            "steps": column([row for row, _ in pairs], "step"),
            "rollouts": [training_rollouts(row) for row, _ in pairs],
            "tokens": column([row for row, _ in pairs], "tokens"),
            "seconds": column([row for row, _ in pairs], "seconds"),
            **{name: column([result for _, result in pairs], name) for name in ("mean", "low", "high", "kl")},
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
    """Training tokens so far, by step."""
    total, found = 0.0, dict[int, float]()
    for row in ledger:
        spent = mapping(row.get("spent"))
        total += sum(
            _amount(mapping(entry), "tokens")
            for purpose, entry in spent.items()
            if purpose in TRAINING and purpose != "reflection"
        )
        if isinstance(step := number(row.get("step")), int):
            found[step] = total
    return found


def _amount(entry: Mapping[str, Any], name: str) -> float:
    if name == "tokens":
        return (number(entry.get("prompt_tokens")) or 0) + (number(entry.get("completion_tokens")) or 0)
    return number(entry.get(name)) or 0


# Spending --------------------------------------------------------------------------------------------------------------


def spending(metrics: Rows, ledger: Rows, totals: Mapping[str, Any]) -> dict[str, Any]:
    """Amounts by purpose: summed up over the steps, in total, and by cycle.

    Older runs have no ledger.jsonl: for them the rollouts in metrics.jsonl make the curve, and ledger.json the totals.
    """
    if not ledger:
        return {
            "steps": column(metrics, "step"),
            "amounts": {"rollouts": {name: column(metrics, key) for name, key in SPENT.items()}} if metrics else {},
            "totals": {purpose: _entry(mapping(totals.get(purpose))) for purpose in PURPOSES if totals.get(purpose)},
            "cycles": [],
        }
    entries = [mapping(row.get("spent")) for row in ledger]
    used = [purpose for purpose in PURPOSES if any(entry.get(purpose) for entry in entries)]
    by_purpose = {purpose: [mapping(entry.get(purpose)) for entry in entries] for purpose in used}
    return {
        "steps": column(ledger, "step"),
        "amounts": {
            name: {
                purpose: [rounded(total) for total in accumulate(_amount(entry, name) for entry in column_of)]
                for purpose, column_of in by_purpose.items()
            }
            for name in AMOUNTS
        },
        "totals": {purpose: _summed(column_of) for purpose, column_of in by_purpose.items()},
        "cycles": _by_cycle(ledger),
    }


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    faults = {str(name): number(count) or 0 for name, count in mapping(entry.get("faults")).items()}
    kept = {name: number(entry.get(name)) or 0 for name in ("reused", "calls", "prompt_tokens", "completion_tokens")}
    return {**{name: _amount(entry, name) for name in AMOUNTS}, **kept, "faults": faults}


def _summed(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    total: dict[str, Any] = _entry({})
    for entry in map(_entry, entries):
        for name, value in entry.items():
            if name == "faults":
                for fault, count in value.items():
                    total["faults"][fault] = total["faults"].get(fault, 0) + count
            else:
                total[name] += value
    return total


def _by_cycle(ledger: Rows) -> list[dict[str, Any]]:
    cycles: dict[Any, dict[str, Any]] = {}
    for row in ledger:
        cycle = cycles.setdefault(
            row.get("cycle"), {"cycle": row.get("cycle"), "rollouts": {}, "cost": 0, "seconds": 0}
        )
        for purpose, entry in mapping(row.get("spent")).items():
            cycle["rollouts"][purpose] = cycle["rollouts"].get(purpose, 0) + _amount(mapping(entry), "rollouts")
            cycle["cost"] += _amount(mapping(entry), "cost")
            cycle["seconds"] += _amount(mapping(entry), "seconds")
    return list(cycles.values())


def fast_rollouts(spent: Mapping[str, Any]) -> float:
    """Rollouts of the fast loop in the `spent` of a cycle."""
    return sum(_amount(mapping(spent.get(purpose)), "rollouts") for purpose in FAST)
