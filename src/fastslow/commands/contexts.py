"""`fastslow contexts`."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

from typer import Option

from fastslow.commands.shared import RunPath, console


def contexts(
    run: RunPath,
    full: Annotated[bool, Option("--full", help="Show whole texts and all feedback.")] = False,
    best: Annotated[bool, Option("--best", help="Print the text of the best context and nothing else.")] = False,
    as_json: Annotated[bool, Option("--json", help="Print the contexts, or with --best the best, as JSON.")] = False,
) -> None:
    """Show how the contexts of a run evolved: their lineage, scores and edits.

    `fastslow contexts RUN --best > prompt.txt` writes the prompt alone. With several components, each text follows its
    name in brackets.
    """
    from fastslow.runs.folder import RunFolder
    from fastslow.runs.lineage import best_context, read_contexts
    from fastslow.runs.tree import show_contexts

    folder = RunFolder.open(run)
    if as_json:
        found: Any = best_context(folder).to_dict() if best else [each.to_dict() for each in read_contexts(folder)]
        _write(json.dumps(found, ensure_ascii=False, indent=2))
    elif best:
        texts = best_context(folder).texts
        named = [f"[{name}]\n{text}" for name, text in texts.items()]
        _write("\n\n".join(named if len(named) > 1 else texts.values()))
    else:
        show_contexts(folder, console, full=full)


def _write(text: str) -> None:
    """Write the text exactly as it is to a file or a pipe; a terminal gets it without control characters."""
    from fastslow.base.text import printable

    shown = printable(text) if sys.stdout.isatty() else text
    encoding = sys.stdout.encoding or "utf-8"
    print(shown.encode(encoding, "backslashreplace").decode(encoding))
