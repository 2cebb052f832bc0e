"""The lines of the texts over time: which line came when, by which edit, what it brought, what it cost, when it went."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from fastslow.runs.board.curves import Rows, training_rollouts
from fastslow.runs.lineage import Cycle, Lineage
from fastslow.runs.reading import mapping, number, rounded


def rules(lineage: Lineage, metrics: Rows, evals: Rows) -> dict[str, Any]:
    """Every line that was in a population, in order of appearance, with its share of each population."""
    cycles = lineage.cycles
    lines: dict[str, list[str]] = {}
    for key, node in lineage.nodes.items():
        found = (line.strip() for text in node.texts.values() for line in text.splitlines())
        lines[key] = list(dict.fromkeys(line for line in found if line))
    shares: dict[str, dict[int, float]] = {}
    for cycle in cycles:
        for key in cycle.population:
            for line in lines.get(key, ()):
                share = shares.setdefault(line, {})
                share[cycle.number] = share.get(cycle.number, 0) + 1 / len(cycle.population)
    in_best = {cycle.number: set(lines.get(cycle.best, ())) for cycle in cycles}
    rollouts = {number(row.get("step")): training_rollouts(row) for row in metrics}
    first = {cycle.number: (cycle, around) for cycle, around in zip(cycles, _around(evals, cycles), strict=True)}
    return {
        "cycles": [cycle.number for cycle in cycles],
        "lines": [
            {
                "text": line,
                "shares": [round(share.get(cycle.number, 0), 3) for cycle in cycles],
                "in_best": [line in in_best[cycle.number] for cycle in cycles],
                "effect": next((each.effects[line] for each in reversed(cycles) if line in each.effects), None),
                **_origin(line, lines, *first[next(iter(share))], rollouts),
            }
            for line, share in shares.items()
        ],
    }


def _origin(
    line: str,
    lines: Mapping[str, Sequence[str]],
    cycle: Cycle,
    validation: Sequence[float | None],
    rollouts: Mapping[float | None, float],
) -> dict[str, Any]:
    """The first accepted edit of the cycle that added the line. A line without one stood in the seed text."""
    for edit in cycle.edits:
        child, parent = str(edit["child"]), str(edit["parent"])
        if edit["accepted"] and line in lines.get(child, ()) and line not in lines.get(parent, ()):
            return {
                "seed": False,
                "child": child,
                "cycle": cycle.number,
                "step": cycle.step,
                "minibatch": [rounded(edit["before"]), rounded(edit["after"])],
                "anchors": [rounded(cycle.scores.get(parent)), rounded(cycle.scores.get(child))],
                "validation": validation,
                "spent": cycle.rollouts,
                "before": rollouts.get(cycle.step, 0 if cycle.step == 0 else None),
            }
    return {"seed": True, "child": None, "cycle": cycle.number, "step": cycle.step}


def _around(evals: Rows, cycles: Sequence[Cycle]) -> list[list[float | None]]:
    """Validation reward under the best context, for each cycle: the last one before it, and the first one after it."""
    results = [mapping(row.get("results")) for row in evals]
    best = [mapping(each.get("best context") or each.get("seed")).get("mean") for each in results]
    steps = [number(row.get("step")) or 0 for row in evals]
    measured = [None, *map(rounded, best), None]
    places = [bisect_right(steps, cycle.step) for cycle in cycles]
    return [[measured[place], measured[place + 1]] for place in places]
