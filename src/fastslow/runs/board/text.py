"""The texts of a run as the page shows them: the tree of contexts, one context in full, who solves what, and the lines over
time: which line came when, by which edit, what it brought, what it cost, when it went."""

from __future__ import annotations

import difflib
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fastslow.base.errors import cause
from fastslow.runs.board.curves import Rows, training_rollouts
from fastslow.runs.lineage import Cycle, Lineage, Node, read_drawn, read_edit, texts_of
from fastslow.runs.reading import MOST, mapping, number, objects, rounded, text, texts
from fastslow.runs.use import Use, count_uses, newest_rows, verdict

SUMMARY = 160
"""Characters of a changed line that the tree shows."""
MOST_PROPOSALS = 100
"""Proposals from one context that are shown, the latest, and edits that led to it."""
MOST_COMPARED = 40_000
"""Pairs of lines, beside those that two texts begin and end with alike, that are compared."""


def tree(lineage: Lineage) -> dict[str, Any]:
    """Every context in order of appearance, without its texts, and every cycle."""
    cycles, seed = lineage.cycles, lineage.seed
    alive = cycles[-1].population if cycles else [seed] if seed else []
    best = cycles[-1].best if cycles else seed
    return {
        "nodes": [
            {
                "id": node.id,
                "parents": list(node.parents),
                "born": node.born,
                "score": node.history[-1]["score"] if node.history else None,
                "scored_at": node.history[-1]["step"] if node.history else None,
                "expected": bool(node.history) and node.history[-1]["expected"],
                "drawn": node.history[-1]["drawn"] if node.history else None,
                "alive": node.id in alive,
                "best": node.id == best,
                "accepted": bool(node.history) or node.edit is None or node.edit["accepted"],
                "reason": (node.edit or {}).get("reason", ""),
                **_change(lineage.parent(node), node),
            }
            for node in lineage.nodes.values()
        ],
        "cycles": [
            {
                "cycle": cycle.number,
                "step": cycle.step,
                "best": cycle.best,
                "score": rounded(cycle.scores.get(cycle.best)),
                "expected": cycle.expected,
                "drawn": cycle.drawn.get(cycle.best),
                "population": cycle.population,
                "edits": len(cycle.edits),
                "accepted": sum(edit["accepted"] for edit in cycle.edits),
                "rejected": cycle.rejected,
                "rollouts": cycle.rollouts,
            }
            for cycle in cycles
        ],
    }


def _change(parent: Node | None, node: Node) -> dict[str, Any]:
    """How many lines an edit added and removed, and the first of them."""
    if parent is None:
        first = next((line for each in node.texts.values() for line in each.splitlines() if line.strip()), "")
        return {"added": 0, "removed": 0, "summary": first[:SUMMARY]}
    changes = [change for part in difference(parent, node.texts) for change in part["lines"]]
    new = [line for kind, line in changes if kind == "new"]
    gone = [line for kind, line in changes if kind == "gone"]
    return {"added": len(new), "removed": len(gone), "summary": next(iter(new or gone), "")[:SUMMARY]}


def difference(before: Node | None, after: Mapping[str, str]) -> list[dict[str, Any]]:
    """The lines of each component of either text: same, new or gone."""
    old = after if before is None else before.texts
    names = dict.fromkeys([*after, *old])
    return [{"component": name, "lines": _difference(old.get(name, ""), after.get(name, ""))} for name in names]


def _difference(before: str, after: str) -> list[tuple[str, str]]:
    """Lines with what became of them. Where many differ, they are compared as wholes: line by line would take too long."""
    old, new = before.splitlines(), after.splitlines()
    start = _alike(old, new)
    end = _alike(old[start:][::-1], new[start:][::-1])
    head, tail = (("same", line) for line in new[:start]), (("same", line) for line in new[len(new) - end :])
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) * len(new) > MOST_COMPARED:
        return [*head, *(("gone", line) for line in old), *(("new", line) for line in new), *tail]
    lines: list[tuple[str, str]] = []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [("same", line) for line in new[c:d]]
        else:
            lines += [*(("gone", line) for line in old[a:b]), *(("new", line) for line in new[c:d])]
    return [*head, *lines, *tail]


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines two texts begin with alike."""
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in same)


def detail(lineage: Lineage, key: str) -> dict[str, Any] | None:
    """Everything about one context: text, difference, scores, the edits that led to it, and what was tried from it."""
    node = lineage.nodes.get(key)
    if node is None:
        return None
    tried = [edit for cycle in lineage.cycles for edit in cycle.edits if edit["parent"] == key][-MOST_PROPOSALS:]
    return {
        "id": node.id,
        "seed": node.id == lineage.seed or not node.parents,
        "born": node.born,
        "parents": list(node.parents),
        "difference": difference(lineage.parent(node), node.texts),
        "texts": dict(node.texts),
        "history": node.history,
        "edits": [*itertools.islice(_edits_of(lineage, node), MOST_PROPOSALS)],
        "proposals": [
            *(_proposal(lineage, node, edit) for edit in tried),
            *itertools.islice(_unplayed(lineage, node, tried), MOST_PROPOSALS),
        ],
    }


def _edits_of(lineage: Lineage, node: Node) -> Iterator[dict[str, Any]]:
    """The edits that led to a context, with their feedback and minibatch, and the parent's score in that cycle."""
    for cycle in lineage.cycles:
        if not any(edit["child"] == node.id for edit in cycle.edits):
            continue
        for edit in objects(lineage.place.json(cycle.file).get("edits")):
            if edit.get("child") == node.id:
                yield {
                    **read_edit(edit),
                    "feedback": texts(edit.get("feedback")),
                    "minibatch": [
                        {
                            "example": text(each.get("example")),
                            **{key: rounded(each.get(key)) for key in ("before", "after")},
                        }
                        for each in objects(edit.get("minibatch"))
                    ],
                    "cycle": cycle.number,
                    "step": cycle.step,
                    "rollouts": cycle.rollouts,
                    "parent_score": rounded(cycle.scores.get(text(edit.get("parent")))),
                    "expected": cycle.expected,
                }


def _proposal(lineage: Lineage, node: Node, edit: Mapping[str, Any]) -> dict[str, Any]:
    child = lineage.nodes.get(edit["child"])
    return {
        "id": edit["child"],
        **{name: edit[name] for name in ("cycle", "accepted", "before", "after", "score", "reason")},
        "difference": difference(node, child.texts) if child else [],
    }


def _unplayed(lineage: Lineage, node: Node, tried: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Proposals that were rejected before any rollout; only the files of cycles with this parent are read."""
    cycles = {edit["cycle"] for edit in tried}
    for cycle in lineage.cycles:
        if cycle.rejected and (cycle.number in cycles or node.id in cycle.scores):
            for proposal in objects(lineage.place.json(cycle.file).get("rejected")):
                if proposal.get("parent") == node.id:
                    yield {
                        "cycle": cycle.number,
                        "accepted": False,
                        "reason": text(proposal.get("reason")),
                        "difference": difference(node, {**node.texts, **texts_of(proposal)}),
                    }


def matrix(lineage: Lineage, wanted: int | None = None) -> dict[str, Any]:
    """Who solves what in a cycle, or is expected to, the last by default: contexts, best first, by problems, the hardest
    last."""
    if not lineage.cycles:
        return {"cycle": None, "expected": False, "problems": [], "rows": []}
    cycle = next((cycle for cycle in lineage.cycles if cycle.number == wanted), lineage.cycles[-1])
    data = lineage.place.json(cycle.file)
    scored = [*objects(data.get("population")), *objects(data.get("dropped"))]
    scores = [{key: number(value) for key, value in mapping(each.get("scores")).items()} for each in scored]
    named = list(dict.fromkeys(problem for row in scores for problem in row))[:MOST]
    solved = {problem: sum(row.get(problem) or 0 for row in scores) for problem in named}
    problems = sorted(solved, key=lambda problem: -solved[problem])
    best = {problem: max(row.get(problem) or 0 for row in scores) for problem in problems}
    worst = {problem: min(row.get(problem) or 0 for row in scores) for problem in problems}
    return {
        "cycle": cycle.number,
        "step": cycle.step,
        "expected": cycle.expected,
        "problems": problems,
        "rows": [
            {
                "id": text(each.get("id")),
                "score": rounded(each.get("score")),
                "drawn": read_drawn(each),
                "best": each.get("id") == cycle.best,
                "kept": each.get("id") in cycle.population,
                "front": bool(each.get("front")),
                "scores": [rounded(row.get(problem)) for problem in problems],
                "top": [worst[p] < best[p] and row.get(p) == best[p] for p in problems],
            }
            for each, row in zip(scored, scores, strict=True)
        ],
    }


def rules(lineage: Lineage, metrics: Rows, evals: Rows) -> dict[str, Any]:
    """Every line that was in a population, in order of appearance, with its share of each population; and for those of the
    best text, whether they are used and followed."""
    cycles = lineage.cycles
    lines: dict[str, dict[str, None]] = {}
    for key, node in lineage.nodes.items():
        found = (line.strip() for each in node.texts.values() for line in each.splitlines())
        lines[key] = dict.fromkeys(itertools.islice(filter(None, found), MOST))
    shares: dict[str, dict[int, float]] = {}
    for cycle in cycles:
        for key in cycle.population:
            for line in lines.get(key, ()):
                share = shares.setdefault(line, {})
                share[cycle.number] = share.get(cycle.number, 0) + 1 / len(cycle.population)
    in_best = {cycle.number: set(lines.get(cycle.best, ())) for cycle in cycles}
    rollouts = {number(row.get("step")): training_rollouts(row) for row in metrics}
    used = _uses(lineage)
    first = {cycle.number: (cycle, around) for cycle, around in zip(cycles, _around(evals, cycles), strict=True)}
    return {
        "cycles": [cycle.number for cycle in cycles],
        "ignored": verdict(used.values()),
        "expected": any(cycle.expected for cycle in cycles),
        "lines": [
            {
                "text": line,
                "shares": [round(share.get(cycle.number, 0), 3) for cycle in cycles],
                "in_best": [line in in_best[cycle.number] for cycle in cycles],
                "effect": next((each.effects[line] for each in reversed(cycles) if line in each.effects), None),
                "use": used[line].to_dict() if line in used else None,
                **_origin(line, lines, *first[next(iter(share))], rollouts),
            }
            for line, share in shares.items()
        ],
    }


def _uses(lineage: Lineage) -> Mapping[str, Use]:
    """How the lines of the newest best text are used, by the rollouts that were saved."""
    place, node = lineage.place, lineage.nodes.get(lineage.cycles[-1].best) if lineage.cycles else None
    if node is None:
        return {}
    steps = place.numbered("rollouts", "step-", ".parquet")
    ages = {(step, 1): name for step, name in steps.items()}
    begun = {cycle.number: cycle.step for cycle in lineage.cycles}
    cycles = place.numbered("rollouts", "cycle-", ".parquet")
    ages |= {(begun[number] + 1, 0): name for number, name in cycles.items() if number in begun}
    newest = (place.file(ages[age]) for age in sorted(ages, reverse=True))
    try:
        rows = newest_rows(path for path in newest if path)
        return count_uses(rows, node.texts, {key: each.texts for key, each in lineage.nodes.items()})
    except Exception as error:  # what a file holds can be anything
        place.notes["rollouts"] = f"the use of lines is not known: {cause(error)}"
        return {}


def _origin(
    line: str,
    lines: Mapping[str, Mapping[str, None]],
    cycle: Cycle,
    validation: Sequence[float | None],
    rollouts: Mapping[float | None, float],
) -> dict[str, Any]:
    """The first accepted edit of the cycle that added the line. A line without one stood in the seed text."""
    for edit in cycle.edits:
        child, parent = edit["child"], edit["parent"]
        if edit["accepted"] and line in lines.get(child, ()) and line not in lines.get(parent, ()):
            return {
                "seed": False,
                "child": child,
                "cycle": cycle.number,
                "step": cycle.step,
                "minibatch": [rounded(edit["before"]), rounded(edit["after"])],
                "anchors": [rounded(cycle.scores.get(parent)), rounded(cycle.scores.get(child))],
                "validation": validation,
                "spent": cycle.rollouts,
                "before": rollouts.get(cycle.step, 0 if cycle.step == 0 else None),
            }
    return {"seed": True, "child": None, "cycle": cycle.number, "step": cycle.step}


def _around(evals: Rows, cycles: Sequence[Cycle]) -> list[list[float | None]]:
    """Validation reward under the best context, for each cycle: the last one before it, and the first one after it."""
    results = [mapping(row.get("results")) for row in evals]
    best = [mapping(each.get("best context") or each.get("seed")).get("mean") for each in results]
    steps = [number(row.get("step")) or 0 for row in evals]
    measured = [None, *map(rounded, best), None]
    places = [bisect_right(steps, cycle.step) for cycle in cycles]
    return [[measured[place], measured[place + 1]] for place in places]
