"""The page: static files that a server sends one by one, or one file to send to somebody, with the runs inside."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from fastslow.base.errors import RunError
from fastslow.runs import files
from fastslow.runs.board.index import Filter
from fastslow.runs.board.rollout import read_rollout
from fastslow.runs.board.views import RunViews, Views

STATIC = Path(__file__).parent / "static"
STYLES = ("vendor/uplot.css", "look.css", "board.css")
SCRIPTS = (
    "vendor/uplot.js",
    *(f"{name}.js" for name in ("core", "charts", "runs", "curves", "text", "rollouts", "spending", "recipe", "main")),
)
KINDS = {".css": "text/css", ".js": "text/javascript"}
FILES = (*STYLES, *SCRIPTS)
ROLLOUTS = 200
"""The newest rollouts that a snapshot holds of each run."""
LONGEST = 20_000
"""Characters of a question, an answer or a grader's text that a snapshot keeps."""


@cache
def static_file(name: str) -> tuple[bytes, str]:
    """The content and the media type of one of `FILES`."""
    body = (STATIC / name).read_bytes()
    return body, KINDS[Path(name).suffix]


def shared_style() -> str:
    """The style sheet of colours, type, tables and differences, for other pages with the same look."""
    return static_file("look.css")[0].decode()


def live_page() -> str:
    head = "".join(f'<link rel="stylesheet" href="static/{name}">' for name in STYLES)
    scripts = "".join(f'<script defer src="static/{name}"></script>' for name in SCRIPTS)
    return _page("fastslow board", head + scripts)


def _whole_page(title: str, data: Any) -> str:
    """The page with everything inside, for a browser without a server; only its own scripts may run."""
    styles = [static_file(name)[0].decode() for name in STYLES]
    scripts = [static_file(name)[0].decode() for name in SCRIPTS]
    policy = (
        f"default-src 'none'; style-src {' '.join(map(_hash, styles))}; script-src {' '.join(map(_hash, scripts))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # In JSON "<" only occurs in strings, so nothing in the data can end the element that holds it.
    text = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    head = f'<meta http-equiv="content-security-policy" content="{escape(policy)}">'
    head += "".join(f"<style>{style}</style>" for style in styles)
    foot = f'<script type="application/json" id="snapshot">{text}</script>'
    foot += "".join(f"<script>{script}</script>" for script in scripts)
    return _page(title, head, foot)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _page(title: str, head: str, foot: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title>{head}</head>"
        f'<body><div id="board"><noscript>The board needs JavaScript.</noscript></div>{foot}</body></html>'
    )


# A page without a server ---------------------------------------------------------------------------------------------


def write_snapshot(views: Views, path: Path) -> int:
    """Write the page; returns the number of runs in it."""
    runs = list(views.find().values())
    if not runs:
        raise RunError(
            f"no run under {', '.join(map(str, views.places.roots))}; give a run folder, or a folder of runs"
        )
    data = {"made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "runs": [_run(run) for run in runs]}
    names = ", ".join(run.place.name for run in runs[:3])
    title = f"{names}{' …' if len(runs) > 3 else ''} · fastslow board"
    files.write_bytes(path, files.encode(_whole_page(title, data)))
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
        turn
        | {name: turn[name] and _start(turn[name]) for name in ("question", "answer")}
        | ({"tokens": []} if len(turn["answer"]) > LONGEST else {})
        for turn in rollout["turns"]
    ]
    return rollout | {"turns": turns, "feedback": _start(rollout["feedback"])}


def _start(text: str) -> str:
    left = len(text) - LONGEST
    return text if left <= 0 else f"{text[:LONGEST]} … ({left:,} more characters are not in this snapshot)"
