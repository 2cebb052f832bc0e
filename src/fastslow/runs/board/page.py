"""The page itself: static files that a server sends one by one and a snapshot holds inline."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
STYLES = ("vendor/uplot.css", "look.css", "board.css")
SCRIPTS = (
    "vendor/uplot.js",
    "core.js",
    "charts.js",
    "runs.js",
    "curves.js",
    "text.js",
    "rollouts.js",
    "spending.js",
    "main.js",
)
KINDS = {".css": "text/css", ".js": "text/javascript"}
FILES = (*STYLES, *SCRIPTS)


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


def snapshot_page(title: str, data: Any) -> str:
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
