"""The lines of the texts over time: which line came when, by which edit, what it brought, what it cost, when it went."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from fastslow.runs.board.curves import training_rollouts
from fastslow.runs.board.logs import mapping, number, rounded
from fastslow.runs.board.text import Entry, Lineage, Node


def rules(lineage: Lineage, metrics: Sequence[Mapping[str, Any]], evals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every line that was in a population, in order of appearance, with its share of each population."""
    lines = {key: _lines(node) for key, node in lineage.nodes.items()}
    cycles = lineage.cycles
    entries = {entry.number: entry for entry in cycles}
    present: dict[str, dict[int, float]] = {}
    in_best: dict[str, set[int]] = {}
    for entry in cycles:
        for key in entry.population:
            for line in lines.get(key, ()):
                shares = present.setdefault(line, {})
                shares[entry.number] = shares.get(entry.number, 0) + 1 / len(entry.population)
        for line in lines.get(entry.best, ()):
            in_best.setdefault(line, set()).add(entry.number)
    rollouts = {number(row.get("step")): training_rollouts(row) for row in metrics}
    validation = {entry.number: around for entry, around in zip(cycles, _around(evals, cycles), strict=True)}
    return {
        "cycles": [entry.number for entry in cycles],
        "lines": [
            {
                "text": line,
                "shares": [round(shares.get(entry.number, 0), 3) for entry in cycles],
                "in_best": [entry.number in in_best.get(line, ()) for entry in cycles],
                "effect": next((each.effects[line] for each in reversed(cycles) if line in each.effects), None),
                **_origin(line, lines, lineage, entries[next(iter(shares))], rollouts, validation),
            }
            for line, shares in present.items()
        ],
    }


def _lines(node: Node) -> list[str]:
    found = (line.strip() for text in node.texts.values() for line in text.splitlines())
    return list(dict.fromkeys(line for line in found if line))


def _origin(
    line: str,
    lines: Mapping[str, Sequence[str]],
    lineage: Lineage,
    entry: Entry,
    rollouts: Mapping[float | None, float],
    validation: Mapping[int, Sequence[float | None]],
) -> dict[str, Any]:
    """The first accepted edit of the cycle that added the line. A line without one stood in the seed text."""
    for edit in entry.edits:
        child, parent = str(edit["child"]), str(edit["parent"])
        if edit["accepted"] and line in lines.get(child, ()) and line not in lines.get(parent, ()):
            return {
                "seed": False,
                "child": child,
                "cycle": entry.number,
                "step": entry.step,
                "minibatch": [rounded(edit["before"]), rounded(edit["after"])],
                "anchors": [rounded(entry.scores.get(parent)), rounded(entry.scores.get(child))],
                "validation": validation[entry.number],
                "spent": entry.rollouts,
                "before": rollouts.get(entry.step, 0 if entry.step == 0 else None),
            }
    return {"seed": True, "child": None, "cycle": entry.number, "step": entry.step}


def _around(evals: Sequence[Mapping[str, Any]], cycles: Sequence[Entry]) -> list[list[float | None]]:
    """Validation reward under the best context, for each cycle: the last one before it, and the first one after it."""
    measured = [(number(row.get("step")) or 0, rounded(_best(row))) for row in evals]
    steps = [step for step, _ in measured]
    found = []
    for entry in cycles:
        after = bisect_right(steps, entry.step)
        before = measured[after - 1][1] if after else None
        found.append([before, measured[after][1] if after < len(measured) else None])
    return found


def _best(row: Mapping[str, Any]) -> Any:
    results = mapping(row.get("results"))
    return mapping(results.get("best context") or results.get("seed")).get("mean")
