"""One rollout in full: its turns, the grader's words, and the log-probability of every token. Rollouts as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastslow.runs import files
from fastslow.runs.reading import Place, mapping, rounded, text
from fastslow.runs.rollout_files import PIECES

if TYPE_CHECKING:
    import pyarrow as pa

SPACES = 1000
"""Characters further on that a token is looked for, because spaces between tokens are not counted."""
REACH = 4
"""Characters that a token which cannot be decoded alone may stand for."""
LONGEST_SHADED = 50_000
"""Tokens of an answer up to which each is shown with its log-probability."""
COLUMNS = {
    **dict.fromkeys(("example", "context", "feedback", "error", "purpose"), "text"),
    **dict.fromkeys(("policy_step", "score", "prompt_tokens", "completion_tokens", "advantage"), "number"),
    **dict.fromkeys(("faults", "components", "questions", "answers"), "list of text"),
    **dict.fromkeys(("tokens", "logprobs"), "list of list of number"),
}
"""What the columns of a file hold."""
SHEET = (
    *("run", "file", "row", "example", "context", "policy_step", "purpose", "score", "advantage", "faults"),
    *("prompt_tokens", "completion_tokens", "question", "answer", "feedback", "error"),
)
"""The columns of rollouts as CSV: the question of the first turn, the answer of the last."""


def short(file: str) -> str:
    """The name that the page uses for a file of rollouts."""
    return file.removeprefix("rollouts/").removesuffix(".parquet")


def read_columns(place: Place, name: str, columns: Sequence[str] | None = None) -> pa.Table | None:
    """Those of the columns, or all, that a file has and that are of the kind that a run writes."""
    import pyarrow.types as kinds

    def right(kind: pa.DataType, wanted: str) -> bool:
        if wanted.startswith("list of "):
            return bool(kinds.is_list(kind)) and right(kind.value_type, wanted.removeprefix("list of "))
        if wanted == "text":
            return bool(kinds.is_string(kind) or kinds.is_large_string(kind))
        return bool(kinds.is_integer(kind) or kinds.is_floating(kind))

    table = place.table(name, columns)
    wrong = [
        field.name
        for field in (table.schema if table is not None else ())
        if field.name not in COLUMNS or not right(field.type, COLUMNS[field.name])
    ]
    return table.drop_columns(wrong) if table is not None else None


def read_rollout(place: Place, name: str, row: int) -> dict[str, Any] | None:
    table = read_columns(place, name)
    if table is None or not 0 <= row < table.num_rows:
        return None
    return rollout_data(table, row, _pieces(table))


def read_group(place: Place, name: str, example: str) -> list[dict[str, Any]]:
    """All rollouts of one problem in a file: the same problem under every context."""
    table = read_columns(place, name)
    if table is None or "example" not in table.column_names:
        return []
    rows, pieces = [row for row, found in enumerate(table["example"].to_pylist()) if found == example], _pieces(table)
    return [rollout_data(table, row, pieces) | {"row": row} for row in rows]


def read_rows(place: Place, name: str, rows: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Some rollouts of a file, without their tokens."""
    table = read_columns(place, name, [column for column in COLUMNS if column not in ("tokens", "logprobs")])
    for row in rows:
        if table is not None and row < table.num_rows:
            found = rollout_data(table, row, {})
            turns = [{key: turn[key] for key in ("component", "question", "answer")} for turn in found["turns"]]
            yield {"run": place.name, "file": short(name), "row": row, **found, "turns": turns}


def sheet(row: Mapping[str, Any]) -> list[Any]:
    turns = row["turns"] or [{"question": "", "answer": ""}]
    flat = {**row, "faults": ", ".join(row["faults"]), "question": turns[0]["question"], "answer": turns[-1]["answer"]}
    return [_no_formula(flat[name]) for name in SHEET]


def _no_formula(cell: Any) -> Any:
    """A text that a spreadsheet would compute gets an apostrophe before it; texts of models are nobody's formulas."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def rollout_data(table: pa.Table, row: int, pieces: Mapping[str, Any]) -> dict[str, Any]:
    """A rollout as the page shows it. Columns that an older file lacks are empty."""
    data = table.slice(row, 1).to_pylist()[0]

    def of_turn(column: str, turn: int) -> Any:
        values = data.get(column) or ()
        return values[turn] if turn < len(values) else None

    turns = []
    for turn, answer in enumerate(str(each or "") for each in data.get("answers") or ()):
        tokens, logprobs = of_turn("tokens", turn) or [], of_turn("logprobs", turn) or []
        texts = [text(pieces.get(str(token))) for token in tokens[:LONGEST_SHADED]]
        turns.append(
            {
                "component": of_turn("components", turn),
                "question": of_turn("questions", turn),
                "answer": answer,
                "tokens": shaded(answer, texts, [each or 0.0 for each in logprobs]) if pieces else [],
            }
        )
    return {
        **{name: str(data.get(name)) for name in ("example", "context")},
        **{name: rounded(data.get(name)) for name in ("policy_step", "prompt_tokens", "completion_tokens")},
        **{name: rounded(data.get(name)) for name in ("score", "advantage")},
        **{name: str(data.get(name) or "") for name in ("feedback", "error")},
        "purpose": data.get("purpose") or "slow",
        "faults": [str(name) for name in data.get("faults") or ()],
        "turns": turns,
    }


def _pieces(table: pa.Table) -> Mapping[str, Any]:
    try:
        return mapping(files.loads((table.schema.metadata or {}).get(PIECES, b"{}")))
    except (ValueError, RecursionError):
        return {}


def shaded(answer: str, pieces: Sequence[str], logprobs: Sequence[float]) -> list[list[Any]]:
    """The answer split into tokens with their log-probabilities.

    Decoded alone, a token may lose a leading space or be half a character: what stands between two tokens that are found
    joins the earlier one, and tokens that are not found share the lowest log-probability of their stretch.
    """
    found: list[list[Any]] = []
    position, lost = 0, list[float]()
    for piece, logprob in zip(pieces, logprobs, strict=False):
        reach = position + len(piece) + REACH * len(lost) + SPACES
        at = answer.find(piece, position, reach) if piece.strip("\ufffd") and piece != "" else -1
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
