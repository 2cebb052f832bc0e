"""The contexts of a run and their descent, read once for the command line, DataFrames, the board and studies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastslow.base.errors import RunError
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import FAST
from fastslow.runs.reading import Place, mapping, number, objects, rounded, text, texts

LONGEST = 100_000
"""Characters of a text that the board shows."""


@dataclass
class Node:
    id: str
    texts: Mapping[str, str]
    parents: Sequence[str] = ()
    born: int | None = None
    """The cycle it was proposed in."""
    edit: dict[str, Any] | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    """Its scores, one for each cycle it was scored in."""


@dataclass
class Cycle:
    """What is kept in memory of a cycle; the rest is read from its file when somebody asks."""

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
    expected: bool
    """Its scores are what the optimizer expects, rather than measured."""
    drawn: dict[str, list[float]]
    """Of expected scores: the mean score of the rollouts that the cycle saw under each context, and their number."""


class Lineage:
    """All contexts and cycles of a run, read again only where a file changed."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.nodes: dict[str, Node] = {}
        self.cycles: list[Cycle] = []
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
            if not name.endswith("seed.json"):
                self._take_cycle(name, data)
            elif isinstance(seed := data.get("id"), str):
                self.seed = seed
                self.nodes[seed] = Node(seed, texts_of(data))
        self._stamps = stamps

    def _take_cycle(self, name: str, data: Mapping[str, Any]) -> None:
        cycle, population = number(data.get("cycle")), objects(data.get("population"))
        if not isinstance(cycle, int) or not population:
            if data:
                self.place.notes[name] = "skipped: it lacks the cycle's number or its population"
            return
        for each in [*objects(data.get("contexts")), *population]:
            if isinstance(key := each.get("id"), str) and key not in self.nodes:
                parents = texts(each.get("parents"))
                born = each.get("born") if parents else None
                self.nodes[key] = Node(key, texts_of(each), parents, born if isinstance(born, int) else None)
        edits = [read_edit(edit) | {"cycle": cycle} for edit in objects(data.get("edits"))]
        for edit in edits:
            child = self.nodes.get(text(edit["child"]))
            if child is not None and (child.edit is None or edit["accepted"]):
                child.edit = edit
        step, spent = number(data.get("policy_step")), mapping(data.get("spent"))
        scored = [(each, number(each.get("scored_at")), True) for each in population]
        scored += [(each, step, False) for each in objects(data.get("dropped"))]
        expected = any(is_expected(each, data) for each in population)
        self.cycles.append(
            Cycle(
                file=name,
                number=cycle,
                step=int(step or 0),
                best=text(data.get("best")),
                population=[text(each.get("id")) for each in population],
                scores=self._take_scores(cycle, scored, expected),
                edits=edits,
                rejected=len(objects(data.get("rejected"))),
                rollouts=sum(number(mapping(spent.get(purpose)).get("rollouts")) or 0 for purpose in FAST),
                effects={
                    text(line.get("line")): [rounded(line.get(key)) for key in ("effect", "deviation", "problems")]
                    for line in objects(data.get("lines"))
                },
                expected=expected,
                drawn={text(each.get("id")): drawn for each in population if (drawn := read_drawn(each))},
            )
        )

    def _take_scores(
        self, cycle: int, scored: Iterable[tuple[Mapping[str, Any], float | None, bool]], expected: bool
    ) -> dict[str, float]:
        """Of each scored context: what the file says, the step it was scored at, and whether it was kept."""
        found = {}
        for data, step, kept in scored:
            node, score = self.nodes.get(text(data.get("id"))), number(data.get("score"))
            if node is None or score is None:
                continue
            found[node.id] = score
            node.history.append(
                {
                    "cycle": cycle,
                    "step": step,
                    "score": rounded(score),
                    "expected": expected,
                    "drawn": read_drawn(data),
                    "problems": len(mapping(data.get("scores"))),
                    "wins": number(data.get("wins")),
                    "front": bool(data.get("front")),
                    "kept": kept,
                }
            )
        return found

    def survivors(self) -> list[Node]:
        """The last population with its ancestors, in order of appearance."""
        found = ancestry(self.nodes, self.cycles[-1].population if self.cycles else ())
        return [node for node in self.nodes.values() if node.id in found]

    def parent(self, node: Node) -> Node | None:
        return next((self.nodes[parent] for parent in node.parents if parent in self.nodes), None)


def read_edit(edit: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of an edit: its feedback and minibatch stay in the file."""
    names = {name: text(edit.get(name)) for name in ("child", "parent", "component", "reason")}
    numbers = {name: rounded(edit.get(name)) for name in ("before", "after", "score")}
    return {**names, **numbers, "accepted": edit.get("accepted") is True}


def read_drawn(member: Mapping[str, Any]) -> list[float] | None:
    """The mean score of the rollouts that a cycle saw under a context, and their number, where its score is expected."""
    drawn = member.get("drawn")
    pair = [rounded(each) for each in drawn] if isinstance(drawn, list) and len(drawn) == 2 else []
    return [each for each in pair if each is not None] if pair and None not in pair else None


def texts_of(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: text(each)[:LONGEST] for name, each in mapping(data.get("texts")).items()}


@dataclass
class Member:
    """A context that was in use or accepted: its parents, as first recorded, and its last score."""

    id: str
    texts: dict[str, str]
    parents: list[str]
    born: int
    """The cycle it was proposed in; 0 for the seed text."""
    score: float | None = None
    """Mean score on training problems when it was last scored."""
    scored_at: int | None = None
    """The step of the policy it was last scored under."""
    expected: bool = False
    """The score is what the optimizer expects, rather than measured."""
    drawn: tuple[float, int] | None = None
    """Of an expected score: the mean score of the rollouts that the cycle saw under it, and their number."""
    in_pool: bool = False
    best: bool = False
    edits: list[dict[str, Any]] = field(default_factory=list)
    """The accepted edits that led to it."""

    def to_dict(self) -> dict[str, Any]:
        """What `fastslow contexts --json` prints."""
        return {name: value for name, value in asdict(self).items() if name != "edits"}


def gather(cycles: Sequence[Mapping[str, Any]]) -> dict[str, Member]:
    """Every context that was in use or accepted, in order of appearance. Data that no run writes raises."""
    members: dict[str, Member] = {}
    for data in cycles:
        accepted = [edit for edit in data["edits"] if edit["accepted"]]
        in_use = {*data["carried"], *(edit["child"] for edit in accepted), *(item["id"] for item in data["population"])}
        for each in data["contexts"]:
            if each["id"] in in_use:
                member = Member(each["id"], dict(each["texts"]), list(each["parents"]), each["born"])
                members.setdefault(each["id"], member)
        for edit in accepted:
            member = members[edit["child"]]
            member.edits.append(edit)
            member.score, member.scored_at = edit["score"], data["policy_step"]
        for each in data["population"]:
            member = members[each["id"]]
            member.score, member.scored_at = each["score"], each["scored_at"]
            member.expected = is_expected(each, data)
            member.drawn = tuple(each["drawn"]) if each.get("drawn") else None
    if cycles:
        for each in cycles[-1]["population"]:
            members[each["id"]].in_pool = True
        if best := members.get(str(cycles[-1].get("best"))):
            best.best = True
    return members


def is_expected(member: Mapping[str, Any], cycle: Mapping[str, Any]) -> bool:
    """Whether a score in a cycle's file is what the optimizer expects; older files show it by the lines that it judged."""
    return "drawn" in member or bool(cycle.get("lines"))


def ancestry(known: Mapping[str, Node] | Mapping[str, Member], ids: Iterable[str]) -> set[str]:
    """Those of the contexts, and their ancestors, that are known."""
    found, waiting = set[str](), list(ids)
    while waiting:
        key = waiting.pop()
        if key in known and key not in found:
            found.add(key)
            waiting += known[key].parents
    return found


def read_contexts(run: RunFolder, until: int | None = None) -> list[Member]:
    """Every context that was in use, as of a step or now; before the first cycle, and without a fast loop, the seed."""
    with files.understood(run.path):
        if cycles := [each for each in run.cycles() if until is None or each["policy_step"] < until]:
            return list(gather(cycles).values())
        seed = run.read_json("contexts/seed.json")
        if seed is None:
            raise RunError(f"'{run.path}' has no contexts yet; they are written when the run starts")
        return [Member(seed["id"], dict(seed["texts"]), [], 0, in_pool=True, best=True)]


def best_context(run: RunFolder) -> Member:
    """The context of the newest cycle, or of the best checkpoint's, that scored best on training problems."""
    info = run.info
    fell = info.get("best") != info.get("checkpoint")
    found = [member for member in read_contexts(run, info.get("best") if fell else None) if member.best]
    if not found:
        raise RunError(f"the newest file in '{run.path / 'contexts'}' names no best context; restore it from a copy")
    return found[0]


def context_texts(run: RunFolder) -> dict[str, dict[str, str]]:
    """The texts of every context of a run, by its id."""
    seed = run.read_json("contexts/seed.json")
    found = [each for data in run.cycles() for each in (*data["contexts"], *data["population"])]
    return {each["id"]: each["texts"] for each in ([seed] if seed else []) + found}
