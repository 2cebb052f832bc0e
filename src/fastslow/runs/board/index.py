"""Browsing rollouts: an index of the short columns in memory, and texts read only for the rows on the page; and one rollout
in full: its turns, the grader's words, and the log-probability of every token.

Files are indexed newest first, for a limited time per request and the rest in the background, so that the first page of a
long run comes at once. 500,000 rollouts take about 20 MB.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastslow.runs import files
from fastslow.runs.board.search import TEXTS, TextIndex
from fastslow.runs.reading import Place, mapping, rounded, text
from fastslow.runs.rollout_files import PIECES

if TYPE_CHECKING:
    import pyarrow as pa

PREVIEW = 160
"""Characters of an answer that the table shows."""
PATIENCE = 0.25
"""Seconds that a request spends on indexing before it answers with what there is."""
SPACES = 1000
"""Characters further on that a token is looked for, because spaces between tokens are not counted."""
REACH = 4
"""Characters that a token which cannot be decoded alone may stand for."""
LEAST, MOST = -(2.0**31), 2.0**31 - 1
"""Numbers beyond these are shown as if they were these."""
LONGEST_SHADED = 50_000
"""Tokens of an answer up to which each is shown with its log-probability."""
KEPT = 24
"""Files whose previews are kept."""
SHORT = ("example", "context", "policy_step", "score", "faults", "completion_tokens", "purpose", "advantage")
COLUMNS = {
    **dict.fromkeys(("example", "context", "feedback", "error", "purpose"), "text"),
    **dict.fromkeys(("policy_step", "score", "prompt_tokens", "completion_tokens", "advantage"), "number"),
    **dict.fromkeys(("faults", "components", "questions", "answers"), "list of text"),
    **dict.fromkeys(("tokens", "logprobs"), "list of list of number"),
}
"""What the columns of a file hold."""
SORTS = {"newest": None, "score": "score", "tokens": "tokens", "advantage": "advantage"}


@dataclass(frozen=True)
class Filter:
    """Which rollouts to show; None or empty means all."""

    first_step: int | None = None
    last_step: int | None = None
    low: float | None = None
    high: float | None = None
    problem: str = ""
    context: str = ""
    fault: str = ""
    purpose: str = ""
    words: str = ""
    """In a question, an answer or what the grader said; capitals make no difference."""


class RolloutIndex:
    def __init__(self, place: Place) -> None:
        self.place = place
        self._codes: dict[str, dict[str, int]] = {name: {} for name in ("example", "context", "purpose", "faults")}
        """Numbers for strings that repeat."""
        self._chunks: dict[str, dict[str, np.ndarray]] = {}
        self._stamps: dict[str, tuple[int, int]] = {}
        self._files: list[str] = []
        self._merged: dict[str, np.ndarray] | None = None
        self._previews: OrderedDict[str, list[str]] = OrderedDict()
        self._texts: TextIndex | None = None
        """None until somebody searches."""
        self._lock = threading.Lock()
        self._builder: threading.Thread | None = None

    # Indexing ----------------------------------------------------------------------------------------------------------

    def refresh(self, patience: float = PATIENCE) -> None:
        """Index new files until the patience is over; the rest follows in the background."""
        with self._lock:
            waiting = self._waiting()
            until = time.monotonic() + patience
            while waiting and (time.monotonic() < until or not self._chunks):
                self._index(waiting.pop())
            unread = self._unread()
            while unread and time.monotonic() < until:
                self._read_texts(unread.pop())
            if (waiting or unread) and not (self._builder and self._builder.is_alive()):
                self._builder = threading.Thread(target=self._build, daemon=True)
                self._builder.start()

    def _build(self) -> None:
        while True:
            with self._lock:
                waiting = self._waiting()
                unread = self._unread()
                if not waiting and not unread:
                    return
                for name in waiting[-20:][::-1]:
                    self._index(name)
                for name in [] if waiting else unread[-20:][::-1]:
                    self._read_texts(name)
            time.sleep(0.005)  # lets requests in

    def _waiting(self) -> list[str]:
        """Files that are new or changed, oldest first."""
        kinds = (self.place.numbered("rollouts", kind, ".parquet") for kind in ("cycle-", "step-"))
        self._files = [name for found in kinds for name in found.values()]
        for name in self._stamps.keys() - set(self._files):
            self._stamps.pop(name)
            self._chunks.pop(name, None)
            self._forget(name)
            self._merged = None
        # A finished file never changes but on resume, when its step is written again: the newest is checked, and the folder.
        newest = self._files[-1:]
        return [
            name
            for name in self._files
            if name not in self._stamps or (name in newest and self.place.stamp(name) != self._stamps[name])
        ]

    def _index(self, name: str) -> None:
        self._stamps[name] = self.place.stamp(name)
        self._previews.pop(name, None)
        self._forget(name)
        self._merged = None
        table = self._read(name, SHORT)
        if table is not None:
            self._chunks[name] = self._encode(name, table)

    def _unread(self) -> list[str]:
        """Files that a search still lacks, oldest first."""
        return [] if self._texts is None else [name for name in self._files if name not in self._texts]

    def _read_texts(self, name: str) -> None:
        assert self._texts is not None
        table = read_columns(self.place, name, TEXTS)
        columns = [] if table is None else [table[column].to_pylist() for column in table.column_names]
        texts = [
            ["\n".join(filter(None, each)) if isinstance(each, list) else each or "" for each in column]
            for column in columns
        ]
        self._texts.add(name, texts, table.num_rows if table is not None else 0)

    def _forget(self, name: str) -> None:
        if self._texts is not None:
            self._texts.drop(name)

    def _read(self, name: str, columns: Sequence[str]) -> pa.Table | None:
        """Some columns of a file, those that it has; None if it is damaged, which is noted."""
        table = read_columns(self.place, name, columns)
        if table is not None and (missing := {"example", "context", "score"} - set(table.column_names)):
            self.place.notes[name] = f"skipped: no column {', '.join(sorted(missing))} of the kind that a run writes"
            return None
        return table

    def _encode(self, name: str, table: pa.Table) -> dict[str, np.ndarray]:
        count = table.num_rows
        number = int(name.rpartition("-")[2].partition(".")[0])
        fast = name.startswith("rollouts/cycle-")

        def values(column: str, default: Any) -> list[Any]:
            return table[column].to_pylist() if column in table.column_names else [default] * count

        def coded(column: str, texts: Iterable[str]) -> np.ndarray:
            codes = self._codes[column]
            return np.array([codes.setdefault(text, len(codes)) for text in texts], np.int32)

        def numbers(column: str, kind: type) -> np.ndarray:
            missing = np.nan if kind is np.float32 else 0
            found = np.array([missing if value is None else value for value in values(column, None)], float)
            return np.clip(found if kind is np.float32 else np.nan_to_num(found), LEAST, MOST).astype(kind)

        return {
            "row": np.arange(count, dtype=np.int32),
            # A step trains the policy of the step before it; the fast loop's rollouts count for the step they prepare.
            "step": numbers("policy_step", np.int32) if fast else np.full(count, number, np.int32),
            "example": coded("example", map(str, values("example", ""))),
            "context": coded("context", map(str, values("context", ""))),
            "purpose": coded("purpose", map(str, values("purpose", "slow"))),
            "faults": coded("faults", (", ".join(filter(None, names or ())) for names in values("faults", ()))),
            "score": numbers("score", np.float32),
            "advantage": numbers("advantage", np.float32),
            "tokens": numbers("completion_tokens", np.int32),
        }

    def _table(self) -> dict[str, np.ndarray]:
        """The index as one table, in the order of steps; a cycle comes before the step it prepares."""
        if self._merged is None:
            names = [name for name in self._files if name in self._chunks]
            chunks = [self._chunks[name] for name in names]
            if not chunks:
                return {}
            merged = {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}
            places = [place for place, name in enumerate(self._files) if name in self._chunks]
            merged["file"] = np.repeat(places, [len(chunk["row"]) for chunk in chunks]).astype(np.int32)
            order = np.argsort(merged["step"], kind="stable")
            self._merged = {key: column[order] for key, column in merged.items()}
        return self._merged

    # Asking ------------------------------------------------------------------------------------------------------------

    def page(self, chosen: Filter, sort: str, descending: bool, offset: int, limit: int) -> dict[str, Any]:
        """One page of the rollouts that pass the filter, and how many there are."""
        with self._lock:
            if chosen.words and self._texts is None:
                self._texts = TextIndex()
        self.refresh()
        with self._lock:
            table = self._table()
            read = len(self._files) - len(self._unread()) if chosen.words else len(self._files)
            indexed = {"files": len(self._files), "indexed": min(len(self._stamps), read)}
            if not table:
                return {"total": 0, "all": 0, "offset": 0, "rows": [], "facets": {}, **indexed}
            found = self._sorted(np.flatnonzero(self._mask(table, chosen)), table, sort, descending)
            texts = {name: list(codes) for name, codes in self._codes.items()}
            rows = [self._row(table, texts, int(index)) for index in found[offset : offset + limit]]
            self._add_previews(rows)
            counts = {"total": len(found), "all": len(table["row"]), "offset": offset}
            return {**counts, "rows": rows, "facets": _facets(table, texts), **indexed}

    def matching(self, chosen: Filter) -> dict[str, list[int]]:
        """The rows that pass the filter by file, newest first, as soon as all files are indexed."""
        while (page := self.page(chosen, "newest", True, 0, 0))["indexed"] < page["files"]:
            pass  # each call reads on for a while
        with self._lock:
            table = self._table()
            rows: dict[str, list[int]] = {}
            for index in np.flatnonzero(self._mask(table, chosen))[::-1] if table else ():
                rows.setdefault(self._files[table["file"][index]], []).append(int(table["row"][index]))
            return rows

    def _mask(self, table: Mapping[str, np.ndarray], chosen: Filter) -> np.ndarray:
        mask = np.ones(len(table["row"]), bool)
        for column, low, high in (("step", chosen.first_step, chosen.last_step), ("score", chosen.low, chosen.high)):
            if low is not None:
                mask &= table[column] >= low
            if high is not None:
                mask &= table[column] <= high
        for wanted, column in ((chosen.context, "context"), (chosen.purpose, "purpose")):
            if wanted:
                mask &= table[column] == self._codes[column].get(wanted, -1)
        for wanted, column in ((chosen.problem, "example"), (chosen.fault, "faults")):
            if wanted:
                mask &= np.array([wanted in each for each in self._codes[column]], bool)[table[column]]
        if chosen.words and self._texts is not None:
            mask &= self._texts.found(chosen.words, self._files, table["file"], table["row"])
        return mask

    def _sorted(self, found: np.ndarray, table: Mapping[str, np.ndarray], sort: str, descending: bool) -> np.ndarray:
        key = SORTS.get(sort)
        if key is None:
            return found[::-1] if descending else found
        values = np.nan_to_num(table[key][found], nan=-np.inf)
        return found[np.argsort(-values if descending else values, kind="stable")]

    def _row(self, table: Mapping[str, np.ndarray], texts: Mapping[str, Sequence[str]], index: int) -> dict[str, Any]:
        row = {name: column[index] for name, column in table.items()}
        return {
            "file": _short(self._files[row["file"]]),
            **{name: int(row[name]) for name in ("row", "step", "tokens")},
            **{name: known[row[name]] for name, known in texts.items()},
            **{name: rounded(float(row[name])) for name in ("score", "advantage")},
        }

    def _add_previews(self, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            name = f"rollouts/{row['file']}.parquet"
            if name not in self._previews:
                table = self._read(name, ("answers", "example", "context", "score"))
                answers = table["answers"].to_pylist() if table is not None and "answers" in table.column_names else []
                self._previews[name] = [" ".join(str((turns or [""])[-1])[:PREVIEW].split()) for turns in answers]
            self._previews.move_to_end(name)
            previews = self._previews[name]
            row["preview"] = previews[row["row"]] if row["row"] < len(previews) else ""
        while len(self._previews) > KEPT:
            self._previews.popitem(last=False)

    def known(self, file: str) -> str | None:
        """The path within the run of a file of rollouts, by the name that the page uses for it."""
        name = f"rollouts/{file}.parquet"
        with self._lock:
            self._waiting()
            return name if name in self._files else None


def _short(file: str) -> str:
    """The name that the page uses for a file of rollouts."""
    return file.removeprefix("rollouts/").removesuffix(".parquet")


def _facets(table: Mapping[str, np.ndarray], texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "contexts": texts["context"],
        "purposes": texts["purpose"],
        "faults": sorted({name for text in texts["faults"] for name in text.split(", ") if name}),
        "steps": [int(table["step"][0]), int(table["step"][-1])],
    }


# One rollout in full ---------------------------------------------------------------------------------------------------


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
            yield {"run": place.name, "file": _short(name), "row": row, **found, "turns": turns}


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
