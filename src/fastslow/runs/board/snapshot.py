"""The board as one file to send to somebody: everything but old rollouts, without a server."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastslow.base.errors import RunError
from fastslow.runs import files
from fastslow.runs.board.conversation import read_rollout
from fastslow.runs.board.page import snapshot_page
from fastslow.runs.board.rollouts import Filter
from fastslow.runs.board.views import RunViews, Views

ROLLOUTS = 200
"""The newest rollouts that a snapshot holds of each run."""

LONGEST = 20_000
"""Characters of a question, an answer or a grader's text that a snapshot keeps."""


def write_snapshot(views: Views, path: Path) -> int:
    """Write the page; returns the number of runs in it."""
    runs = list(views.find().values())
    if not runs:
        raise RunError(
            f"no run under {', '.join(map(str, views.places.roots))}; give a run folder, or a folder of runs"
        )
    data = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "runs": [_run(run) for run in runs],
    }
    names = ", ".join(run.place.name for run in runs[:3])
    title = f"{names}{' …' if len(runs) > 3 else ''} · fastslow board"
    files.write_bytes(path, files.encode(snapshot_page(title, data)))
    return len(runs)


def _run(run: RunViews) -> dict[str, Any]:
    text = json.loads(run.text())
    return {
        "run": json.loads(run.run()),
        "curves": json.loads(run.curves()),
        "spending": json.loads(run.spending()),
        "text": text,
        "contexts": {node["id"]: json.loads(run.context(node["id"])) for node in text["nodes"]},
        "matrix": [json.loads(run.matrix(cycle["cycle"])) for cycle in text["cycles"]],
        "rollouts": _rollouts(run),
    }


def _rollouts(run: RunViews) -> list[dict[str, Any]]:
    run.index.refresh(patience=0)
    page = run.index.page(Filter(), "newest", True, 0, ROLLOUTS)
    return [
        row | {"full": _shortened(full)}
        for row in page["rows"]
        if (full := read_rollout(run.place, f"rollouts/{row['file']}.parquet", row["row"])) is not None
    ]


def _shortened(rollout: dict[str, Any]) -> dict[str, Any]:
    """The rollout without the rest of very long texts, and without their tokens."""
    turns = [
        {
            "component": turn["component"],
            "question": turn["question"] and _start(turn["question"]),
            "answer": _start(turn["answer"]),
            "tokens": turn["tokens"] if len(turn["answer"]) <= LONGEST else [],
        }
        for turn in rollout["turns"]
    ]
    return rollout | {"turns": turns, "feedback": _start(rollout["feedback"])}


def _start(text: str) -> str:
    left = len(text) - LONGEST
    return text if left <= 0 else f"{text[:LONGEST]} … ({left:,} more characters are not in this snapshot)"
