"""How far a statement reaches: on what share of new problems it will be true again, and whether it can be believed.

A statement made of several problems is a rule. One made of a single problem is a rare rule or a remark; how often such
statements return is estimated from all of them together, apart for those that quote their attempt.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fastslow.fast.digest.journal import Journal, Statement

HALF_LIFE = 3.0
"""Cycles after which a problem counts half in what is expected of new problems."""
TRUE_AGAIN, FALSE_AGAIN = 0.5, 0.15
"""How often a grader names a rule again when an answer to the same problem fails again: a true rule, beside others that may
be broken too, and a slip of the grader's."""
TRUSTED = 0.9
"""Share of a grader's statements that are taken to be true before any evidence."""


@dataclass(frozen=True)
class Support:
    """What the grader's words alone say of a statement."""

    share: float
    """Of new problems, those it is expected to be about."""
    problems: int
    truth: float
    """The probability that it is no slip."""


def support(journal: Journal, cycle: int) -> dict[str, Support]:
    """The support of every statement."""
    weights = {problem: 0.5 ** ((cycle - last) / HALF_LIFE) for problem, last in journal.problems.items()}
    total = sum(weights.values())
    again = repeats(journal)
    returning = {quotes: singletons_return(_counts(journal, quotes)) for quotes in (False, True)}
    found = {}
    for key, statement in journal.statements.items():
        problems = _problems(journal, statement)
        weight = sum(weights.get(problem, 0.0) for problem in problems)
        if len(problems) == 1 and not statement.covers:
            weight *= returning[statement.quotes]
        share = weight / total if total else 0.0
        found[key] = Support(share, len(problems), truth(*again.get(key, (0, 0))))
    return found


def singletons_return(counts: Mapping[int, int]) -> float:
    """How likely a statement made of one problem is to be made of another: the share of statements of its kind that were made
    of a second one, with one imagined statement that is half of each sort. `counts` has the statements by their problems."""
    several = sum(number for problems, number in counts.items() if problems > 1)
    return (several + 0.5) / (sum(counts.values()) + 1)


def repeats(journal: Journal) -> dict[str, tuple[int, int]]:
    """For every statement: of the further failures on problems it had been made of, under texts without it, in how many it
    was made again, and in how many not."""
    made: Counter[str] = Counter()
    not_made: Counter[str] = Counter()
    for row, known in zip(journal.rows, journal.known, strict=True):
        if row.said:
            for key in known - row.lines:
                (made if key in row.said else not_made)[key] += 1
    return {key: (made[key], not_made[key]) for key in made.keys() | not_made.keys()}


def truth(made: int, not_made: int) -> float:
    """The posterior probability that a statement is true, given how often it was made again where it could have been."""
    odds = math.log(TRUSTED / (1 - TRUSTED))
    odds += made * math.log(TRUE_AGAIN / FALSE_AGAIN) + not_made * math.log((1 - TRUE_AGAIN) / (1 - FALSE_AGAIN))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def _problems(journal: Journal, statement: Statement) -> set[str]:
    """The problems a statement is about; a line that stands for several is about all that they are about."""
    covered = [journal.statements[key].problems for key in statement.covers if key in journal.statements]
    return set(statement.problems).union(*covered)


def _counts(journal: Journal, quotes: bool) -> Counter[int]:
    return Counter(len(each.problems) for each in journal.statements.values() if each.quotes == quotes and each.problems)
