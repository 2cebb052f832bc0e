"""The result of a search as OpenEvolve and gepa write theirs."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastslow.discover.problem import Problem

FORMATS = ("openevolve", "gepa")
_LANGUAGES = {".py": "python", ".c": "c", ".cpp": "cpp", ".rs": "rust", ".r": "r", ".js": "javascript"}
Row = Mapping[str, Any]


def export(kind: str, problem: Problem, best: Row, rows: Sequence[Row], folder: Path) -> Path:
    """Write the best candidate, and for gepa all valid ones, and return the main file. Both libraries maximize: a score to
    be minimized is written with its sign changed. `rows` are those of `candidates.jsonl`."""
    kept = [row for row in rows if "text" in row and row["score"] is not None]
    folder.mkdir(parents=True, exist_ok=True)
    return _FORMATS[kind](problem, best, kept, folder)


def _openevolve(problem: Problem, best: Row, rows: Sequence[Row], folder: Path) -> Path:
    by_id = {row["id"]: row for row in rows}
    chosen, generation = by_id[best["id"]], 0
    row = chosen
    while (row := by_id.get(row["parent"], {})) and generation < len(rows):
        generation += 1
    now = time.time()
    info = {
        "id": chosen["id"],
        "generation": generation,
        "iteration": chosen["number"],
        "timestamp": now,
        "parent_id": chosen["parent"] or None,
        "metrics": {"combined_score": problem.value(best["score"]), "score": best["score"]},
        "language": _LANGUAGES.get(problem.suffix, "text"),
        "saved_at": now,
    }
    program = folder / f"best_program{problem.suffix}"
    program.write_text(chosen["text"], encoding="utf-8")
    (folder / "best_program_info.json").write_text(json.dumps(info, indent=2), encoding="utf-8")
    return program


def _gepa(problem: Problem, best: Row, rows: Sequence[Row], folder: Path) -> Path:
    from gepa.core.result import GEPAResult

    scores = [problem.value(row["score"]) for row in rows]
    at = {row["id"]: index for index, row in enumerate(rows)}
    result: GEPAResult[Any, int] = GEPAResult(
        candidates=[{_TEXT: row["text"]} for row in rows],
        parents=[[at.get(row["parent"])] for row in rows],
        val_aggregate_scores=scores,
        val_subscores=[{0: score} for score in scores],
        per_val_instance_best_candidates={0: {index for index, score in enumerate(scores) if score == max(scores)}},
        discovery_eval_counts=[row["number"] for row in rows],
        total_metric_calls=max(row["number"] for row in rows),
        _str_candidate_key=_TEXT,
    )
    file = folder / "gepa_result.json"
    file.write_text(json.dumps(result.to_dict(), indent=2, ensure_ascii=False), encoding="utf-8")
    return file


_TEXT = "current_candidate"
_FORMATS = dict(zip(FORMATS, (_openevolve, _gepa), strict=True))
