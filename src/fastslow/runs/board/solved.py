"""Who solves what: the contexts of a cycle by its problems, which makes the Pareto front visible."""

from __future__ import annotations

from typing import Any

from fastslow.runs.board.logs import mapping, number, rounded
from fastslow.runs.board.text import Lineage, records


def matrix(lineage: Lineage, cycle: int | None = None) -> dict[str, Any]:
    """Who solves what in a cycle: contexts, best first, by problems, the hardest last."""
    entry = next(
        (entry for entry in lineage.cycles if entry.number == cycle), lineage.cycles[-1] if lineage.cycles else None
    )
    if entry is None:
        return {"cycle": None, "problems": [], "rows": []}
    data = lineage.place.json(entry.file)
    scored = [*records(data.get("population")), *records(data.get("dropped"))]
    scores = [{str(key): number(value) for key, value in mapping(r.get("scores")).items()} for r in scored]
    solved = {problem: sum(row.get(problem) or 0 for row in scores) for row in scores for problem in row}
    problems = sorted(solved, key=lambda problem: -solved[problem])
    best = {problem: max(row.get(problem) or 0 for row in scores) for problem in problems}
    worst = {problem: min(row.get(problem) or 0 for row in scores) for problem in problems}
    return {
        "cycle": entry.number,
        "step": entry.step,
        "problems": problems,
        "rows": [
            {
                "id": str(record.get("id")),
                "score": rounded(record.get("score")),
                "best": record.get("id") == entry.best,
                "kept": record.get("id") in entry.population,
                "front": bool(record.get("front")),
                "scores": [rounded(row.get(problem)) for problem in problems],
                "top": [worst[p] < best[p] and row.get(p) == best[p] for p in problems],
            }
            for record, row in zip(scored, scores, strict=True)
        ],
    }
