"""The texts of a run: every context with its lineage, edits, scores and rejected proposals."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastslow.runs.board.curves import fast_rollouts
from fastslow.runs.board.logs import mapping, number, rounded
from fastslow.runs.board.places import Place

SUMMARY = 160
"""Characters of a changed line that the tree shows."""


@dataclass
class Node:
    """One context over the whole run."""

    id: str
    texts: Mapping[str, str]
    parents: Sequence[str] = ()
    born: int | None = None
    """The cycle it was proposed in; None for the seed text."""
    edit: dict[str, Any] | None = None
    """The edit that made it, without its feedback."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """Its scores, one for each cycle it was scored in."""


@dataclass
class Entry:
    """What the board keeps in memory of a cycle; the rest is read from its file when somebody asks."""

    file: str
    number: int
    step: int
    best: str
    population: list[str]
    scores: dict[str, float]
    """The mean score of every context that was scored in the cycle."""
    edits: list[dict[str, Any]]
    rejected: int
    rollouts: float
    effects: dict[str, list[float | None]]
    """By line: what it brings on the problems it is about, the deviation of that, and the number of these problems."""


class Lineage:
    """All contexts and cycles of a run, read again only where a file changed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.nodes: dict[str, Node] = {}
        self.cycles: list[Entry] = []
        self.seed: str | None = None
        self._stamps: dict[str, tuple[int, int]] = {}

    @property
    def version(self) -> tuple[Any, ...]:
        return tuple(self._stamps.items())

    def refresh(self) -> None:
        names = ["contexts/seed.json", *self.place.numbered("contexts", "cycle-", ".json").values()]
        stamps = {name: self.place.stamp(name) for name in names}
        if stamps == self._stamps:
            return
        known = list(self._stamps.items())
        if known != list(stamps.items())[: len(known)]:  # an old file changed, as after a resume
            self.nodes, self.cycles, known = {}, [], []
        for name in names[len(known) :]:
            data = self.place.json(name)
            if name.endswith("seed.json"):
                self._take_seed(data)
            elif data:
                self._take_cycle(name, data)
        self._stamps = stamps

    def _take_seed(self, data: Mapping[str, Any]) -> None:
        if isinstance(seed := data.get("id"), str):
            self.seed = seed
            self.nodes[seed] = Node(seed, _texts(data.get("texts")))

    def _take_cycle(self, name: str, data: Mapping[str, Any]) -> None:
        cycle, population = number(data.get("cycle")), records(data.get("population"))
        if not isinstance(cycle, int) or not population:
            self.place.notes[name] = "skipped: it lacks the cycle's number or its population"
            return
        edits = records(data.get("edits"))
        for record in [*records(data.get("contexts")), *population]:
            if isinstance(key := record.get("id"), str) and key not in self.nodes:
                parents = [parent for parent in record.get("parents") or () if isinstance(parent, str)]
                born = record.get("born") if parents else None
                self.nodes[key] = Node(
                    key, _texts(record.get("texts")), parents, born if isinstance(born, int) else None
                )
        step = number(data.get("policy_step"))
        scores = {}
        for record, kept in [
            *((each, True) for each in population),
            *((e, False) for e in records(data.get("dropped"))),
        ]:
            node = self.nodes.get(str(record.get("id")))
            if node is None or (score := number(record.get("score"))) is None:
                continue
            scores[node.id] = score
            node.history.append(
                {
                    "cycle": cycle,
                    "step": number(record.get("scored_at")) if kept else step,
                    "score": rounded(score),
                    "problems": len(mapping(record.get("scores"))),
                    "wins": number(record.get("wins")),
                    "front": bool(record.get("front")),
                    "kept": kept,
                }
            )
        kept_edits = [
            {
                key: edit.get(key)
                for key in ("child", "parent", "component", "before", "after", "accepted", "score", "reason")
            }
            | {"cycle": cycle}
            for edit in edits
        ]
        for edit in kept_edits:
            child = self.nodes.get(str(edit["child"]))
            if child is not None and (child.edit is None or edit["accepted"]):
                child.edit = edit
        self.cycles.append(
            Entry(
                file=name,
                number=cycle,
                step=int(step or 0),
                best=str(data.get("best")),
                population=[str(record.get("id")) for record in population],
                scores=scores,
                edits=kept_edits,
                rejected=len(records(data.get("rejected"))),
                rollouts=fast_rollouts(mapping(data.get("spent"))),
                effects={
                    str(line.get("line")): [rounded(line.get(name)) for name in ("effect", "deviation", "problems")]
                    for line in records(data.get("lines"))
                },
            )
        )

    def survivors(self) -> list[Node]:
        """The last population with its ancestors, in order of appearance."""
        found: set[str] = set()
        waiting = list(self.cycles[-1].population) if self.cycles else []
        while waiting:
            key = waiting.pop()
            if key in self.nodes and key not in found:
                found.add(key)
                waiting += self.nodes[key].parents
        return [node for node in self.nodes.values() if node.id in found]

    # What the page asks for --------------------------------------------------------------------------------------------

    def tree(self) -> dict[str, Any]:
        """Every context in order of appearance, without its texts, and every cycle."""
        alive = self.cycles[-1].population if self.cycles else [self.seed] if self.seed else []
        best = self.cycles[-1].best if self.cycles else self.seed
        return {
            "nodes": [
                {
                    "id": node.id,
                    "parents": list(node.parents),
                    "born": node.born,
                    "score": node.history[-1]["score"] if node.history else None,
                    "scored_at": node.history[-1]["step"] if node.history else None,
                    "alive": node.id in alive,
                    "best": node.id == best,
                    "accepted": bool(node.history) or node.edit is None or bool(node.edit["accepted"]),
                    "reason": str((node.edit or {}).get("reason") or ""),
                    **self._change(node),
                }
                for node in self.nodes.values()
            ],
            "cycles": [
                {
                    "cycle": entry.number,
                    "step": entry.step,
                    "best": entry.best,
                    "score": rounded(entry.scores.get(entry.best)),
                    "population": entry.population,
                    "edits": len(entry.edits),
                    "accepted": sum(bool(edit["accepted"]) for edit in entry.edits),
                    "rejected": entry.rejected,
                    "rollouts": entry.rollouts,
                }
                for entry in self.cycles
            ],
        }

    def _change(self, node: Node) -> dict[str, Any]:
        """How many lines an edit added and removed, and the first of them."""
        parent = self._parent(node)
        if parent is None:
            first = next((line for text in node.texts.values() for line in text.splitlines() if line.strip()), "")
            return {"added": 0, "removed": 0, "summary": first[:SUMMARY]}
        changes = [change for part in self.difference(parent, node.texts) for change in part["lines"]]
        new = [line for kind, line in changes if kind == "new"]
        gone = [line for kind, line in changes if kind == "gone"]
        return {"added": len(new), "removed": len(gone), "summary": next(iter(new or gone), "")[:SUMMARY]}

    def _parent(self, node: Node) -> Node | None:
        return next((self.nodes[parent] for parent in node.parents if parent in self.nodes), None)

    def difference(self, before: Node | None, texts: Mapping[str, str]) -> list[dict[str, Any]]:
        """The lines of each component: same, new or gone."""
        old = before.texts if before else {}
        return [
            {"component": name, "lines": _difference(old.get(name, "") if before else text, text)}
            for name, text in texts.items()
        ]

    def detail(self, key: str) -> dict[str, Any] | None:
        """Everything about one context: text, difference, scores, the edits that led to it, and what was tried from it."""
        node = self.nodes.get(key)
        if node is None:
            return None
        parent = self._parent(node)
        tried = [edit for entry in self.cycles for edit in entry.edits if edit["parent"] == key]
        return {
            "id": node.id,
            "seed": node.id == self.seed or not node.parents,
            "born": node.born,
            "parents": list(node.parents),
            "difference": self.difference(parent, node.texts),
            "texts": dict(node.texts),
            "history": node.history,
            "edits": [*self._edits_of(node)],
            "proposals": [self._proposal(node, edit) for edit in tried] + self._unplayed(node, tried),
        }

    def _edits_of(self, node: Node) -> Iterator[dict[str, Any]]:
        """The edits that led to a context, with their feedback and minibatch, and the parent's score in that cycle."""
        for entry in self.cycles:
            if not any(edit["child"] == node.id for edit in entry.edits):
                continue
            for edit in records(self.place.json(entry.file).get("edits")):
                if edit.get("child") == node.id:
                    yield {
                        **{
                            name: edit.get(name)
                            for name in ("parent", "component", "before", "after", "accepted", "score")
                        },
                        "reason": str(edit.get("reason") or ""),
                        "feedback": [str(text) for text in edit.get("feedback") or ()],
                        "minibatch": records(edit.get("minibatch")),
                        "cycle": entry.number,
                        "step": entry.step,
                        "rollouts": entry.rollouts,
                        "parent_score": rounded(entry.scores.get(str(edit.get("parent")))),
                    }

    def _proposal(self, node: Node, edit: Mapping[str, Any]) -> dict[str, Any]:
        child = self.nodes.get(str(edit["child"]))
        return {
            "id": edit["child"],
            "cycle": edit["cycle"],
            "accepted": bool(edit["accepted"]),
            "before": rounded(edit["before"]),
            "after": rounded(edit["after"]),
            "score": rounded(edit["score"]),
            "reason": str(edit["reason"] or ""),
            "difference": self.difference(node, child.texts) if child else [],
        }

    def _unplayed(self, node: Node, tried: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Proposals that were rejected before any rollout; only the files of cycles with this parent are read."""
        cycles = {edit["cycle"] for edit in tried} | {entry.number for entry in self.cycles if node.id in entry.scores}
        found = []
        for entry in self.cycles:
            if entry.number in cycles and entry.rejected:
                for proposal in records(self.place.json(entry.file).get("rejected")):
                    if proposal.get("parent") == node.id:
                        texts = {**node.texts, **_texts(proposal.get("texts"))}
                        found.append(
                            {
                                "cycle": entry.number,
                                "accepted": False,
                                "reason": str(proposal.get("reason") or ""),
                                "difference": self.difference(node, texts),
                            }
                        )
        return found


def _difference(before: str, after: str) -> list[tuple[str, str]]:
    """Lines with what became of them. Long texts are compared as wholes: a comparison line by line would take too long."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) * len(new) > 4_000_000:
        return [*(("gone", line) for line in old), *(("new", line) for line in new)]
    lines: list[tuple[str, str]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [("same", line) for line in new[c:d]]
        else:
            lines += [*(("gone", line) for line in old[a:b]), *(("new", line) for line in new[c:d])]
    return lines


def _texts(value: Any) -> dict[str, str]:
    return {str(name): str(text) for name, text in mapping(value).items()}


def records(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
