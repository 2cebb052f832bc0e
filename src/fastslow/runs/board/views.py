"""What each view of the page shows, as JSON data: the one seam between run folders and HTTP or a snapshot."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastslow.base.errors import FastSlowError
from fastslow.runs.board.conversation import read_group, read_rollout
from fastslow.runs.board.curves import curves, spending
from fastslow.runs.board.logs import Log
from fastslow.runs.board.overview import read_recipe, summary
from fastslow.runs.board.places import Place, Places
from fastslow.runs.board.rollouts import Filter, RolloutIndex
from fastslow.runs.board.rules import rules
from fastslow.runs.board.solved import matrix
from fastslow.runs.board.text import Lineage

WATCHED = {
    "run": "run.json",
    "metrics": "metrics.jsonl",
    "evals": "evals.jsonl",
    "ledger": "ledger.jsonl",
    "contexts": "contexts",
    "rollouts": "rollouts",
}
"""The parts of a run that change, and the file or folder that says so."""
MOST = 200
"""Rows of one page of rollouts at most."""


class NotFound(FastSlowError):
    """There is no such run, context or rollout."""


class RunViews:
    """The views of one run."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lock = threading.RLock()
        self.metrics, self.evals = Log(place, "metrics.jsonl"), Log(place, "evals.jsonl")
        self.ledger = Log(place, "ledger.jsonl")
        self.lineage, self.index = Lineage(place), RolloutIndex(place)
        self._recipe: tuple[tuple[int, int], tuple[dict[str, Any], str]] | None = None
        self._kept: dict[str, tuple[Any, bytes]] = {}

    def version(self) -> dict[str, list[int]]:
        """Stamps of the watched parts; one differs whenever its part has changed."""
        return {part: list(self.place.stamp(name)) for part, name in WATCHED.items()}

    def summary(self) -> dict[str, Any]:
        with self.lock:
            self.metrics.refresh()
            self.evals.refresh()
            return summary(self.place, self.recipe()[0], self.metrics, self.evals)

    def recipe(self) -> tuple[dict[str, Any], str]:
        stamp = self.place.stamp("recipe.yaml")
        if self._recipe is None or self._recipe[0] != stamp:
            self._recipe = (stamp, read_recipe(self.place))
        return self._recipe[1]

    def run(self) -> bytes:
        return encode(self.summary() | {"recipe": self.recipe()[1]})

    def curves(self) -> bytes:
        with self.lock:
            for log in (self.metrics, self.evals, self.ledger):
                log.refresh()
            version = (self.metrics.version, self.evals.version, self.ledger.version)
            return self._keep("curves", version, lambda: curves(self.metrics.rows, self.evals.rows, self.ledger.rows))

    def spending(self) -> bytes:
        with self.lock:
            self.metrics.refresh()
            self.ledger.refresh()
            version = (self.metrics.version, self.ledger.version, self.place.stamp("ledger.json"))
            return self._keep(
                "spending",
                version,
                lambda: spending(self.metrics.rows, self.ledger.rows, self.place.json("ledger.json")),
            )

    def text(self) -> bytes:
        with self.lock:
            for log in (self.metrics, self.evals):
                log.refresh()
            self.lineage.refresh()
            return self._keep(
                "text",
                (self.lineage.version, self.evals.version),
                lambda: {**self.lineage.tree(), "rules": rules(self.lineage, self.metrics.rows, self.evals.rows)},
            )

    def matrix(self, cycle: int | None) -> bytes:
        with self.lock:
            self.lineage.refresh()
            return encode(matrix(self.lineage, cycle))

    def context(self, key: str) -> bytes:
        with self.lock:
            self.lineage.refresh()
            found = self.lineage.detail(key)
        if found is None:
            raise NotFound(f"run '{self.place.name}' has no context '{key}'")
        return encode(found)

    def rollouts(self, chosen: Filter, sort: str, descending: bool, offset: int, limit: int) -> bytes:
        page = self.index.page(chosen, sort, descending, max(0, offset), max(1, min(limit, MOST)))
        return encode({**page, "told": self.told()})

    def rollout(self, file: str, row: int) -> bytes:
        """One rollout with the texts of its context."""
        found = read_rollout(self.place, self._file(file), row)
        if found is None:
            raise NotFound(f"'{file}' of run '{self.place.name}' has no readable row {row}")
        return encode(found | {"texts": self.texts(found["context"])})

    def group(self, file: str, example: str) -> bytes:
        """All rollouts of one problem in a file."""
        rows = read_group(self.place, self._file(file), example)
        return encode({"rows": rows, "texts": {key: self.texts(key) for key in {row["context"] for row in rows}}})

    def texts(self, key: str) -> Mapping[str, str]:
        with self.lock:
            self.lineage.refresh()
            node = self.lineage.nodes.get(key)
        return node.texts if node else {}

    def _file(self, file: str) -> str:
        name = self.index.known(file)
        if name is None:
            raise NotFound(f"run '{self.place.name}' has no file of rollouts '{file}'")
        return name

    def told(self) -> dict[str, Any]:
        """What every view says of the run: the error that ended it, and what could not be read."""
        return {"error": str(self.place.json("run.json").get("error") or ""), "notes": dict(self.place.notes)}

    def _keep(self, name: str, version: Any, make: Callable[[], dict[str, Any]]) -> bytes:
        """The encoded answer, made once per version: all viewers get the same bytes."""
        whole = (version, self.place.stamp("run.json"), tuple(self.place.notes.items()))
        kept = self._kept.get(name)
        if kept is None or kept[0] != whole:
            kept = self._kept[name] = (whole, encode({**make(), "told": self.told()}))
        return kept[1]


class Views:
    """All runs under the named folders."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.places = Places(roots)
        self._runs: dict[str, RunViews] = {}
        self._lock = threading.Lock()

    def find(self) -> dict[str, RunViews]:
        with self._lock:
            places = self.places.find()
            self._runs = {
                name: self._runs[name] if name in self._runs else RunViews(place) for name, place in places.items()
            }
            return dict(self._runs)

    def __getitem__(self, name: str) -> RunViews:
        runs = self._runs if name in self._runs else self.find()
        if name not in runs:
            raise NotFound(f"no run '{name}' under {', '.join(map(str, self.places.roots))}")
        return runs[name]

    def runs(self) -> bytes:
        return encode({"runs": [run.summary() for run in self.find().values()]})


def encode(data: Any) -> bytes:
    """JSON; what is not a number in JSON becomes null."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite(data), allow_nan=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
