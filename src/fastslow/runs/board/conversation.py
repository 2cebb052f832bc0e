"""One rollout in full: its turns, the grader's words, and the log-probability of every token."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastslow.runs.reading import Place, mapping, rounded
from fastslow.runs.rollout_files import PIECES

if TYPE_CHECKING:
    import pyarrow as pa

REACH = 4
"""Characters that a token which cannot be decoded alone may stand for."""


def read_rollout(place: Place, name: str, row: int) -> dict[str, Any] | None:
    table = place.table(name)
    if table is None or not 0 <= row < table.num_rows:
        return None
    return rollout_data(table, row, _pieces(table))


def read_group(place: Place, name: str, example: str) -> list[dict[str, Any]]:
    """All rollouts of one problem in a file: the same problem under every context."""
    table = place.table(name)
    if table is None:
        return []
    rows, pieces = [row for row, found in enumerate(table["example"].to_pylist()) if found == example], _pieces(table)
    return [rollout_data(table, row, pieces) | {"row": row} for row in rows]


def rollout_data(table: pa.Table, row: int, pieces: Mapping[str, Any]) -> dict[str, Any]:
    """A rollout as the page shows it. Columns that an older file lacks are empty."""
    data = table.slice(row, 1).to_pylist()[0]

    def of_turn(column: str, turn: int) -> Any:
        values = data.get(column) or ()
        return values[turn] if turn < len(values) else None

    turns = []
    for turn, answer in enumerate(str(each or "") for each in data.get("answers") or ()):
        tokens, logprobs = of_turn("tokens", turn) or [], of_turn("logprobs", turn) or []
        texts = [str(pieces.get(str(token), "")) for token in tokens]
        turns.append(
            {
                "component": of_turn("components", turn),
                "question": of_turn("questions", turn),
                "answer": answer,
                "tokens": shaded(answer, texts, [float(number) for number in logprobs]) if pieces else [],
            }
        )
    return {
        **{name: str(data.get(name)) for name in ("example", "context")},
        **{name: data.get(name) for name in ("policy_step", "prompt_tokens", "completion_tokens")},
        **{name: rounded(data.get(name)) for name in ("score", "advantage")},
        **{name: str(data.get(name) or "") for name in ("feedback", "error")},
        "purpose": data.get("purpose") or "slow",
        "faults": [str(name) for name in data.get("faults") or ()],
        "turns": turns,
    }


def _pieces(table: pa.Table) -> Mapping[str, Any]:
    try:
        return mapping(json.loads((table.schema.metadata or {}).get(PIECES, b"{}")))
    except ValueError:
        return {}


def shaded(answer: str, pieces: Sequence[str], logprobs: Sequence[float]) -> list[list[Any]]:
    """The answer split into tokens with their log-probabilities.

    Decoded alone, a token may lose a leading space or be half a character: what stands between two tokens that are found
    joins the earlier one, and tokens that are not found share the lowest log-probability of their stretch.
    """
    found: list[list[Any]] = []
    position, lost = 0, list[float]()
    for piece, logprob in zip(pieces, logprobs, strict=False):
        at = answer.find(piece, position) if piece.strip("\ufffd") and piece != "" else -1
        gap = answer[position:at] if at >= 0 else ""
        if at < 0 or len(gap.strip()) > REACH * len(lost):
            lost.append(logprob)
            continue
        if lost:
            found.append([gap, rounded(min(lost))])
            gap, lost = "", []
        found.append([gap + piece, rounded(logprob)])
        position = at + len(piece)
    if answer[position:]:
        found.append([answer[position:], rounded(min(lost)) if lost else None])
    return found
