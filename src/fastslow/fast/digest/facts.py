"""Statements that are no rules: verdicts, which only name an answer, and facts, which tell what was wrong this time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from fastslow.fast.digest.classes import CLOSING, LEFT_OUT, OPENING, QUOTED, VARIANTS, states_something
from fastslow.fast.digest.topics import Topics

FILLINGS = 3
"""A sentence that is said with this many different labels in it may be a verdict."""
LEAST_FACTS, BESIDE_FACTS = 4, 1.5
"""How often a fact is told, and how much more often the rule beside it may be."""
MOSTLY = 0.75
"""Share of the times at which a rule is said beside a case, or a case beside a rule, from which they belong together."""
LEAST_REFUSED = 8
"""Failures under a text from which it is known that a line does not change what is said of them."""
ALWAYS = 0.99
"""Share of the failures, or of the right answers, from which a sentence is said of all of them: it explains none."""

_WANTED = re.compile(r"(?i)\b(?:expect|should|must|want|right|correct|need)\w*\b")
"""What a sentence says that tells the value wanted in this case; one that names what was given may name what must not be."""
_VALUE = re.compile(rf"{QUOTED}|\d+")
_LEFT = re.compile(rf"[{OPENING}]{LEFT_OUT}[{CLOSING}]")


def verdicts(
    said: Mapping[str, Mapping[str, int]], framed: Mapping[str, tuple[str, ...]], topics: Topics
) -> frozenset[str]:
    """Statements that only say which answer was given or expected: "this one goes to A, not to B". They are alike but for the
    labels in them, are said with many labels, none of them most of the time (nearly always, if they have no other words), and
    name nothing that tells problems apart. `said` has, by key, how often a statement was made of each problem."""
    families: dict[tuple[str, ...], list[str]] = {}
    for key, frame in framed.items():
        families.setdefault(frame, []).append(key)
    found: set[str] = set()
    for frame, members in families.items():
        times = [sum(said[key].values()) for key in members]
        problems = frozenset().union(*(said[key] for key in members))
        bare = len(members) > FILLINGS and not states_something(" ".join(frame[1:]).strip() or "the")
        varied = len(members) >= FILLINGS and max(times) <= (MOSTLY if bare else 0.5) * sum(times)
        if varied and not topics.shared(frame[1:], problems):
            found |= set(members)
    return frozenset(found)


def facts(said: Mapping[str, tuple[str, set[int]]]) -> frozenset[str]:
    """Statements with a value left out that are made beside one and the same other, and only there: they tell what the answer
    was, and the other what is wrong with it. What has no other value may be one until it was said often enough. `said` has,
    by key, the text and the rollouts of which it was said."""
    whole = [rows for text, rows in said.values() if LEFT_OUT not in text]
    return frozenset(
        key
        for key, (text, rows) in said.items()
        if LEFT_OUT in text
        and (
            any(rows <= others and len(others) <= BESIDE_FACTS * len(rows) for others in whole)
            if len(rows) >= LEAST_FACTS
            else _LEFT.search(text) and not _VALUE.search(_LEFT.sub("", text))
        )
    )


def approvals(said: Mapping[str, set[int]], right: set[int], wrong: set[int]) -> frozenset[str]:
    """Statements that are made of every right answer, and of no other or of all others: they tell nothing of either. `said`
    has, by key, of which rollouts."""
    if len(right) < LEAST_FACTS:
        return frozenset()
    return frozenset(
        key for key, rows in said.items() if _of_all(rows, right) and (rows <= right or _of_all(rows, wrong))
    )


def refusals(said: Mapping[str, set[int]], wrong: set[int], held: Callable[[str], set[int]]) -> frozenset[str]:
    """Statements that are made of every failure, beside others, also where the text has them: they only call it one. `held`
    tells in which rollouts a statement stood in the text."""
    always = {key for key, rows in said.items() if _of_all(rows, wrong)}
    beside = set[int]().union(*(rows for key, rows in said.items() if key not in always))
    if len(wrong) < LEAST_REFUSED or not _of_all(beside, wrong):
        return frozenset()
    told = {key: wrong & held(key) for key in always}
    return frozenset(key for key in always if len(told[key]) >= LEAST_REFUSED and _of_all(said[key], told[key]))


def _of_all(rows: set[int], answers: set[int]) -> bool:
    return len(rows & answers) >= ALWAYS * len(answers)


def cases(texts: Mapping[str, str], said: Sequence[Sequence[Sequence[str]]]) -> frozenset[str]:
    """Statements that tell what was wanted in the case at hand beside the rule for it: "expected '[NOR]', got 'Norway'", next
    to "Put the country in brackets." They are alike but for their values, and nearly always stand in the line of a rule, or
    in the one before or after, while the rule stands beside many of them. `said` has the statements of every failure by line,
    and "" for what says nothing without its values."""
    families: dict[str, list[str]] = {}
    for key, text in texts.items():
        if (frame := _frame(text)) != text and _WANTED.search(frame):
            families.setdefault(frame, []).append(key)
    varied = {key for members in families.values() if len(members) >= VARIANTS for key in members}
    failures = [lines for lines in said if any(lines)]
    times = Counter(key for lines in failures for key in {key for line in lines for key in line})
    near: dict[str, Counter[str]] = {}
    explained = Counter[str]()
    for lines in failures:
        for place, line in enumerate(lines):
            around = {key for each in lines[max(0, place - 1) : place + 2] for key in each}
            for key in {*line} - varied - {""}:
                near.setdefault(key, Counter()).update(around & varied)
                near[key][""] += not around.isdisjoint({*varied, ""})
    rules = {
        key
        for key, beside in near.items()
        if len(beside) > VARIANTS and beside[""] >= MOSTLY * times[key] and times[key] < ALWAYS * len(failures)
    }
    for lines in failures:
        for place, line in enumerate(lines):
            around = {key for each in lines[max(0, place - 1) : place + 2] for key in each} & rules
            explained.update(key for key in {*line} & varied if any(VARIANTS * times[key] <= times[r] for r in around))
    found = {key for key in varied if explained[key] >= MOSTLY * times[key] > 0}
    return frozenset(found | _quotations(texts, failures, times))


def _quotations(
    texts: Mapping[str, str], failures: Sequence[Sequence[Sequence[str]]], times: Mapping[str, int]
) -> set[str]:
    """Statements that quote the answer ("there is no step 'sort' in '…'"), where a failure is told in two lines, of which the
    other is the rule: nearly always beside such a rule, which is nearly always beside one of them."""
    quoting = {key for key, text in texts.items() if _LEFT.search(text)}
    pairs = []
    for lines in failures:
        keys = {key for line in lines for key in line if key}
        if sum(map(bool, lines)) == 2 and not keys.isdisjoint(quoting) and keys - quoting:
            pairs.append((keys & quoting, keys - quoting))
    beside = Counter(key for _, rules in pairs for key in rules)
    rules = {key for key, count in beside.items() if count >= MOSTLY * times[key]}
    explained = Counter(key for quoted, others in pairs if others & rules for key in quoted)
    return {key for key, count in explained.items() if count >= MOSTLY * times[key]}


def _frame(text: str) -> str:
    """A sentence without what lies between its first and its last quotation mark, and without numbers."""
    quoted = list(_VALUE.finditer(text))
    return f"{text[: quoted[0].start()]}{LEFT_OUT}{text[quoted[-1].end() :]}" if quoted else text
