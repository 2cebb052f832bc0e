"""Browsing rollouts: an index of the short columns in memory, and texts read only for the rows on the page.

Files are indexed newest first, for a limited time per request and the rest in the background, so that the first page of a
long run comes at once. 500,000 rollouts take about 20 MB.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastslow.runs.board.rollout import read_columns, short
from fastslow.runs.board.search import TEXTS, TextIndex
from fastslow.runs.reading import Place, rounded

if TYPE_CHECKING:
    import pyarrow as pa

PREVIEW = 160
"""Characters of an answer that the table shows."""
PATIENCE = 0.25
"""Seconds that a request spends on indexing before it answers with what there is."""
LEAST, MOST = -(2.0**31), 2.0**31 - 1
"""Numbers beyond these are shown as if they were these."""
KEPT = 24
"""Files whose previews are kept."""
SHORT = ("example", "context", "policy_step", "score", "faults", "completion_tokens", "purpose", "advantage")
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
        kinds = (self.place.numbered("rollouts", kind, ".parquet") for kind in ("evaluation-", "cycle-", "step-"))
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
            "file": short(self._files[row["file"]]),
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


def _facets(table: Mapping[str, np.ndarray], texts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "contexts": texts["context"],
        "purposes": texts["purpose"],
        "faults": sorted({name for text in texts["faults"] for name in text.split(", ") if name}),
        "steps": [int(table["step"][0]), int(table["step"][-1])],
    }
