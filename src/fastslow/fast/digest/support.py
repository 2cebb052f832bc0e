"""How far a statement reaches: which problems it bears on, of what share of new ones it will be made, and whether it is true.

A statement bears on the problems it was made of, and perhaps on others of the same topic: those whose question has the words
that the statement shares with its own problems' questions. A statement made of several problems is a rule. One made of a
single problem is a rare rule or a remark; how often such statements return is estimated from all of them together, apart for
those with a number that only their own problem has.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from fastslow.fast.digest.journal import Journal, Statement
from fastslow.fast.digest.topics import Topics, words_of
from fastslow.fast.digest.words import Order

HALF_LIFE = 3.0
"""Cycles after which a problem counts half in what is expected of new problems."""
TRUE_AGAIN, FALSE_AGAIN = 0.5, 0.15
"""How often a grader names a rule again when another answer to the same problem fails: a true rule, beside others that may be
broken too, and a slip of the grader's."""
TOPIC_WEIGHT = 0.3
"""What a failure on another problem of the topic counts for beside one on a problem that the statement was made of."""
MOST_AROUND = 6.0
"""What all failures on other problems of the topic count for at the most: an exception is rare, and true."""
RIVAL = 4.0
"""How much more often a grader says a true rule than the same with a false label."""
EXAMPLE = 0.4
"""The chance that a solved problem tells a model what the statements about it say, where answers are right without it."""
SCARCE = 0.15
"""A mean score at which few answers are right; where it is no higher without examples, one is believed like a rule."""
TRUSTED = 0.9
"""Share of a grader's statements that are taken to be true before any evidence."""


@dataclass(frozen=True)
class Support:
    """What the grader's words alone say of a statement."""

    own: frozenset[str]
    """The problems it was made of."""
    related: frozenset[str]
    """Other problems of its topic."""
    share: float
    """Of new problems, those it is expected to be made of."""
    returns: float
    """The chance that it will be made of another problem at all."""
    related_share: float
    """And those that are of its topic only."""
    truth: float
    """The probability that it is no slip."""
    has_topic: bool

    @property
    def direct(self) -> float:
        """Of the problems of its topic of which something was said, those that it was made of."""
        both = self.share + self.related_share
        return self.share / both if both else 0.0


def problem_weights(journal: Journal, cycle: int) -> dict[str, float]:
    """What each problem of which something was said counts in what is expected of new ones."""
    return {problem: 0.5 ** ((cycle - last) / HALF_LIFE) for problem, last in journal.problems.items()}


def support(journal: Journal, order: Order, cycle: int) -> dict[str, Support]:
    """The support of every statement."""
    weights = problem_weights(journal, cycle)
    total = sum(weights.values()) or 1.0
    topics = Topics(journal.words)
    own_of = {key: _problems(journal, statement) for key, statement in journal.statements.items()}
    remarks = {key for key, own in own_of.items() if topics.numbered(words_of(journal.statements[key].text), own)}
    returning = {kind: singletons_return(_counts(journal, remarks, kind)) for kind in (False, True)}
    failures = _failures(journal)
    rivals = find_rivals(journal)
    scarce = journal.untaught <= SCARCE
    found = {}
    for key, statement in journal.statements.items():
        own = own_of[key]
        topic = topics.shared(words_of(statement.text), own)
        others = [own_of[other] for other in rivals.get(key, ()) if other != key]
        related = topics.matching(topic).union(*others) - own
        weight = sum(weights.get(problem, 0.0) for problem in sorted(own))
        returns = returning[key in remarks] if len(own) == 1 and not statement.covers else 1.0
        around = sum(weights.get(problem, 0.0) for problem in sorted(related))
        again = _again(key, own, related, failures, order)
        true = truth(*again) * rival_truth(len(own), [len(other) for other in others])
        true *= EXAMPLE if key in journal.examples and not scarce else 1.0
        found[key] = Support(own, related, returns * weight / total, returns, around / total, true, bool(topic))
    return found


def singletons_return(counts: Mapping[int, int]) -> float:
    """How likely a statement made of one problem is to be made of another: the share of statements of its kind that were made
    of a second one, with one imagined statement that is half of each sort. `counts` has the statements by their problems."""
    several = sum(number for problems, number in counts.items() if problems > 1)
    return (several + 0.5) / (sum(counts.values()) + 1)


def find_rivals(journal: Journal) -> dict[str, list[str]]:
    """For statements that are the same but for the labels they name, all of these: one of them is true at the most."""
    families: dict[tuple[str, ...], list[str]] = {}
    for key, ways in journal.frames.items():
        for frame in ways:
            families.setdefault(frame, []).append(key)
    return {
        key: list(dict.fromkeys(other for frame in ways for other in families[frame]))
        for key, ways in journal.frames.items()
    }


def rival_truth(made: int, others: Sequence[int]) -> float:
    """The probability that a statement is the true one of its rivals, given the numbers of problems they were made of."""
    return 1 / (1 + sum(RIVAL ** max(-30, min(30, other - made)) for other in others))


Failures = dict[str, list[tuple[frozenset[str], tuple[str, ...], frozenset[str]]]]
"""By problem: of every failed answer the lines of its text, what was said of it, and what had been said before."""


def _failures(journal: Journal) -> Failures:
    found: Failures = {}
    for row, known in zip(journal.rows, journal.known, strict=True):
        if row.said and row.score < 1:
            found.setdefault(row.problem, []).append((row.lines, row.said, known))
    return found


def _again(
    key: str, own: frozenset[str], related: frozenset[str], failures: Failures, order: Order
) -> tuple[float, float]:
    """Where a statement could have been made again, how often it was and was not: in failures under texts without it, on its
    own problems after it was first made there, and on others of its topic, which count for less."""
    made = not_made = 0.0
    if not own:  # nobody said it
        return made, not_made
    for problem in sorted(own):
        for lines, said, known in failures.get(problem, ()):
            if key in known and key not in lines:
                past = order.passed(key, said)
                made, not_made = made + (key in said), not_made + (key not in said) * past
    around = sum(
        order.passed(key, said)
        for problem in sorted(related)
        for lines, said, _ in failures.get(problem, ())
        if key not in lines
    )
    return made + TOPIC_WEIGHT * (len(own) - 1), not_made + min(MOST_AROUND, TOPIC_WEIGHT * around)


def truth(made: float, not_made: float) -> float:
    """The posterior probability that a statement is true, given how often it was made again where it could have been."""
    odds = math.log(TRUSTED / (1 - TRUSTED))
    odds += made * math.log(TRUE_AGAIN / FALSE_AGAIN) + not_made * math.log((1 - TRUE_AGAIN) / (1 - FALSE_AGAIN))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def _problems(journal: Journal, statement: Statement) -> frozenset[str]:
    """The problems a statement is about; a line that stands for several is about all that they are about."""
    covered = [journal.statements[key].problems for key in statement.covers if key in journal.statements]
    return frozenset(statement.problems).union(*covered)


def _counts(journal: Journal, remarks: Set[str], kind: bool) -> Counter[int]:
    """Statements by the number of their problems, of those that are remarks or of the others."""
    made = {key: len(each.problems) for key, each in journal.statements.items() if each.problems}
    return Counter(count for key, count in made.items() if (key in remarks) == kind)
