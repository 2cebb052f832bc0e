"""One rollout in full: its turns, the grader's words, and the log-probability of every token."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastslow.runs.board.logs import mapping, rounded
from fastslow.runs.board.places import Place
from fastslow.runs.rollout_table import PIECES

if TYPE_CHECKING:
    import pyarrow as pa

REACH = 4
"""Characters that a token which cannot be decoded alone may stand for."""


def read_rollout(place: Place, name: str, row: int) -> dict[str, Any] | None:
    """A row of a file of rollouts; only its row group is read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = place.file(name)
    if path is None or row < 0:
        return None
    try:
        with pq.ParquetFile(path) as file:
            start = 0
            for group in range(file.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                if row < start + count:
                    table = file.read_row_group(group, use_threads=False).slice(row - start, 1)
                    return rollout_data(table, 0, _pieces(file.schema_arrow.metadata))
                start += count
    except (pa.ArrowException, OSError) as error:
        place.notes[name] = f"skipped: not readable as parquet ({type(error).__name__})"
    return None


def read_group(place: Place, name: str, example: str) -> list[dict[str, Any]]:
    """All rollouts of one problem in a file: the same problem under every context."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = place.file(name)
    if path is None:
        return []
    try:
        with pq.ParquetFile(path) as file:
            table = file.read(use_threads=False)
            pieces = _pieces(file.schema_arrow.metadata)
    except (pa.ArrowException, OSError) as error:
        place.notes[name] = f"skipped: not readable as parquet ({type(error).__name__})"
        return []
    rows = [row for row, found in enumerate(table["example"].to_pylist()) if found == example]
    return [rollout_data(table, row, pieces) | {"row": row} for row in rows]


def rollout_data(table: pa.Table, row: int, pieces: Mapping[str, Any]) -> dict[str, Any]:
    """A rollout as the page shows it. Columns that an older file lacks are empty."""
    data = table.slice(row, 1).to_pylist()[0]
    answers = [str(answer or "") for answer in data.get("answers") or ()]

    def of_turn(column: str, turn: int) -> Any:
        values = data.get(column) or ()
        return values[turn] if turn < len(values) else None

    turns = []
    for turn, answer in enumerate(answers):
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
        "example": str(data.get("example")),
        "context": str(data.get("context")),
        "policy_step": data.get("policy_step"),
        "purpose": data.get("purpose") or "slow",
        "score": rounded(data.get("score")),
        "advantage": rounded(data.get("advantage")),
        "feedback": str(data.get("feedback") or ""),
        "error": str(data.get("error") or ""),
        "faults": [str(name) for name in data.get("faults") or ()],
        "prompt_tokens": data.get("prompt_tokens"),
        "completion_tokens": data.get("completion_tokens"),
        "turns": turns,
    }


def _pieces(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any]:
    try:
        return mapping(json.loads((metadata or {}).get(PIECES, b"{}")))
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
