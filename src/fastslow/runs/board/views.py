"""What each view of the page shows, as JSON data: the one seam between run folders and HTTP or a snapshot."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from fastslow.base.errors import FastSlowError, cause
from fastslow.runs import files
from fastslow.runs.board.curves import curves, read_recipe, reason, spending, summary
from fastslow.runs.board.index import Filter, RolloutIndex
from fastslow.runs.board.rollout import SHEET, read_group, read_rollout, read_rows, sheet
from fastslow.runs.board.text import detail, difference, matrix, rules, tree
from fastslow.runs.folder import TAGS
from fastslow.runs.lineage import Lineage, Node
from fastslow.runs.reading import Log, Place, Places, number, text

WATCHED = {
    "run": "run.json",
    "metrics": "metrics.jsonl",
    "evals": "evals.jsonl",
    "ledger": "ledger.jsonl",
    "contexts": "contexts",
    "rollouts": "rollouts",
    "tags": TAGS,
}
"""The parts of a run that change, and the file or folder that says so."""
MOST = 200
"""Rows of one page of rollouts at most."""


class NotFound(FastSlowError):
    """There is no such run, context or rollout."""


class RunViews:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.lock = threading.RLock()
        self.metrics, self.evals = Log(place, "metrics.jsonl"), Log(place, "evals.jsonl")
        self.ledger = Log(place, "ledger.jsonl")
        self.lineage, self.index = Lineage(place), RolloutIndex(place)
        self._recipe: tuple[tuple[int, int], tuple[dict[str, Any], str]] | None = None
        self._kept: dict[str, tuple[Any, bytes]] = {}

    @contextmanager
    def _fresh(self, *sources: Log | Lineage) -> Iterator[None]:
        """Read what is new in the sources, and let no other request do so meanwhile."""
        with self.lock:
            for source in sources:
                source.refresh()
            yield

    def version(self) -> dict[str, list[int]]:
        """Stamps of the watched parts; one differs whenever its part has changed."""
        return {part: list(self.place.stamp(name)) for part, name in WATCHED.items()}

    def summary(self) -> dict[str, Any]:
        """A row of the list. A run that cannot be read has one too, which says why."""
        try:
            with self._fresh(*(logs := (self.metrics, self.evals, self.ledger))):
                return summary(self.place, self.recipe()[0], *(log.rows for log in logs))
        except Exception as error:
            self.place.notes["run.json"] = f"the run cannot be read: {cause(error)}"
            return summary(self.place, {}, [], [], [])

    def recipe(self) -> tuple[dict[str, Any], str]:
        stamp = self.place.stamp("recipe.yaml")
        if self._recipe is None or self._recipe[0] != stamp:
            self._recipe = (stamp, read_recipe(self.place))
        return self._recipe[1]

    def run(self) -> bytes:
        return encode(self.summary() | {"recipe": self.recipe()[1]})

    def curves(self) -> bytes:
        metrics, evals, ledger = self.metrics, self.evals, self.ledger
        return self._keep("curves", (metrics, evals, ledger), lambda: curves(metrics.rows, evals.rows, ledger.rows))

    def spending(self) -> bytes:
        metrics, ledger = self.metrics, self.ledger
        return self._keep(
            "spending",
            (metrics, ledger),
            lambda: spending(metrics.rows, ledger.rows, self.place.json("ledger.json")),
        )

    def text(self) -> bytes:
        lineage, evals = self.lineage, self.evals
        return self._keep(
            "text",
            (lineage, evals),
            lambda: {**tree(lineage), "rules": rules(lineage, self.metrics.refresh(), evals.rows)},
        )

    def matrix(self, cycle: int | None) -> bytes:
        with self._fresh(self.lineage):
            return encode(matrix(self.lineage, cycle))

    def context(self, key: str) -> bytes:
        self.node(key)
        with self.lock:
            return encode(detail(self.lineage, key))

    def difference(self, key: str, other: RunViews, against: str) -> bytes:
        """What a context has and lacks, line by line, against any other one, which may be of another run."""
        return encode({"difference": difference(other.node(against), self.node(key).texts)})

    def node(self, key: str) -> Node:
        with self._fresh(self.lineage):
            node = self.lineage.nodes.get(key)
        if node is None:
            raise NotFound(f"run '{self.place.name}' has no context '{key}'")
        return node

    def rollouts(self, chosen: Filter, sort: str, descending: bool, offset: int, limit: int) -> bytes:
        page = self.index.page(chosen, sort, descending, max(0, offset), max(1, min(limit, MOST)))
        return encode({**page, "told": self.told()})

    def download(self, chosen: Filter, kind: Literal["jsonl", "csv"]) -> Iterator[bytes]:
        """All rollouts that pass the filter; what is in memory at a time is one file."""
        found = self.index.matching(chosen)
        chosen_rows = (read_rows(self.place, name, sorted(rows)) for name, rows in found.items())
        if kind == "csv":
            return chain([csv_lines([SHEET])], (csv_lines(map(sheet, rows)) for rows in chosen_rows))
        return (b"".join(encode(row) + b"\n" for row in rows) for rows in chosen_rows)

    def rollout(self, file: str, row: int) -> bytes:
        found = read_rollout(self.place, self._file(file), row)
        if found is None:
            raise NotFound(f"'{file}' of run '{self.place.name}' has no readable row {row}")
        return encode(found | {"texts": self.texts(found["context"])})

    def group(self, file: str, example: str) -> bytes:
        rows = read_group(self.place, self._file(file), example)
        return encode({"rows": rows, "texts": {key: self.texts(key) for key in {row["context"] for row in rows}}})

    def texts(self, key: str) -> Mapping[str, str]:
        with self._fresh(self.lineage):
            node = self.lineage.nodes.get(key)
        return node.texts if node else {}

    def _file(self, file: str) -> str:
        name = self.index.known(file)
        if name is None:
            raise NotFound(f"run '{self.place.name}' has no file of rollouts '{file}'")
        return name

    def told(self) -> dict[str, Any]:
        """What every view says of the run: how and why it ended early, what is saved, and what could not be read."""
        state = self.place.json("run.json")
        known = {"status": text(state.get("status")), "error": reason(state), "saved": number(state.get("checkpoint"))}
        return {**known, "notes": dict(self.place.notes)}

    def _keep(self, name: str, sources: Sequence[Log | Lineage], make: Callable[[], dict[str, Any]]) -> bytes:
        """The encoded answer, made once per version of the sources: all viewers get the same bytes."""
        with self._fresh(*sources):
            stamps = [self.place.stamp(file) for file in ("run.json", "ledger.json")]
            version = ([source.version for source in sources], stamps, tuple(self.place.notes.items()))
            kept = self._kept.get(name)
            if kept is None or kept[0] != version:
                kept = self._kept[name] = (version, encode({**make(), "told": self.told()}))
            return kept[1]


class Views:
    def __init__(self, roots: Sequence[Path]) -> None:
        self.places = Places(roots)
        self._runs: dict[str, RunViews] = {}
        self._lock = threading.Lock()

    def find(self) -> dict[str, RunViews]:
        with self._lock:
            places = self.places.find()
            self._runs = {name: self._runs.get(name) or RunViews(place) for name, place in places.items()}
            return dict(self._runs)

    def __getitem__(self, name: str) -> RunViews:
        runs = self._runs if name in self._runs else self.find()
        if name not in runs:
            raise NotFound(f"no run '{name}' under {', '.join(map(str, self.places.roots))}")
        return runs[name]

    def runs(self) -> bytes:
        return encode({"runs": [run.summary() for run in self.find().values()]})


def csv_lines(rows: Iterable[Sequence[Any]]) -> bytes:
    lines = io.StringIO()
    csv.writer(lines).writerows(rows)
    return files.encode(lines.getvalue())


def encode(data: Any) -> bytes:
    """JSON; what is not a number in JSON becomes null."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(files.plain(data), allow_nan=False, separators=(",", ":")).encode()
