"""The answers of a cycle: which wrong ones are tried again, and which ones stand in texts as examples.

While lines are not followed, right answers enter as examples, first those that show what no other does. While there is none,
the answers that came nearest are tried again with what the grader said of them; if that brings no right one, some of them may
enter with these words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from fastslow.fast.digest.examples import Candidate, correction, demonstration, is_right, mended, naming, news, picked
from fastslow.fast.digest.journal import Said, component_of, key_of
from fastslow.fast.digest.model import Model
from fastslow.fast.digest.reading import read_feedback
from fastslow.fast.digest.reports import told
from fastslow.fast.digest.transcript import Transcript
from fastslow.fast.reflection import Attempt
from fastslow.fast.reflection.base import MOST_LINES
from fastslow.records import Example, Rollout
from fastslow.rollouts.again import another_try, to_copy

MOST_DEMONSTRATIONS, MOST_ENTERED = 8, 2
"""Solved problems that may stand in texts as examples: in all, and that enter before one batch."""
MOST_CORRECTIONS = 2
"""Wrong answers that may stand in texts, with what was said of them, while no problem is solved."""
LONGEST_DEMONSTRATION, LONGEST_CORRECTION = 0.25, 0.4
"""The part of a text that one of them may take."""
MOST_RETRIED, TRIES = 2, 4
"""Wrong answers that one batch tries again, those that came nearest, and how often."""
RETRYING = 0.5
"""The part of a budget that trying again may take."""
KEPT = 0.5
"""The share of second tries that must come as far as the answers that they were shown."""
FRUITLESS = 32
"""Rollouts in a row that try answers again to no avail, after which no more are tried."""
MOST_KEPT, LONGEST_KEPT = 8, 8000
"""Wrong answers that the next cycle may try again, and the characters of one with its problem and the grader's words."""
IN_VAIN = 24
"""Those of two cycles of which none was right, after which no more are tried while a text can show a right answer."""

Place = tuple[str, str]
"""A component and a problem."""
Far = tuple[float, float, float]


@dataclass(frozen=True)
class Wrong:
    """An answer that was not right, and what was said of it."""

    example: Example
    attempt: Attempt
    score: float
    progress: float
    lines: list[list[Said]]


@dataclass(frozen=True)
class Try:
    """A wrong answer that is tried again, and what stands below the component's text then."""

    component: str
    wrong: Wrong
    below: str


class Answers:
    def __init__(
        self, transcript: Transcript, cycle: int, budget: int, longest: int, count_tokens: Callable[[str], int]
    ) -> None:
        self.transcript, self.cycle, self.longest, self.count_tokens = transcript, cycle, longest, count_tokens
        self.wrong: dict[str, list[Wrong]] = {}
        """By component."""
        self.solved: dict[Place, Attempt] = {}
        """Of each a right one."""
        self.righted = 0
        """How many of the latest tries were right."""
        self._left, self._fruitless = RETRYING * budget, 0
        """Rollouts that may still try answers again, and the latest that did and brought none further."""
        self._tried: dict[Place, Wrong] = {}
        """The answers that were tried again last."""
        self._had_tries: set[tuple[str, str, str]] = set()
        """By component, problem and answer: those that were. Another try of the same would mostly be the same answer."""
        self._tries, self._before = 0, dict[str, int]()
        """How often they were, and the wrong attempts of each component before."""
        self._renewed = False
        """The oldest wrong answer that texts show has gone."""

    def add(self, component: str, rollout: Rollout, attempt: Attempt, lines: list[list[Said]]) -> None:
        if rollout.score >= 1:
            self.solved.setdefault((component, rollout.example.id), attempt)
        else:
            wrong = Wrong(rollout.example, attempt, rollout.score, rollout.progress, lines)
            self.wrong.setdefault(component, []).append(wrong)

    def to_data(self, model: Model) -> list[list[Any]]:
        """While no right answer is known: the nearest answers that have not been tried again, as JSON can hold them."""
        nearest = self._nearest(model, self._had_tries) if self.unsolved() else []
        return [
            [*place, wrong.score, wrong.progress, *said]
            for place, (_, wrong) in nearest
            if sum(map(len, said := (wrong.attempt.question, wrong.attempt.answer, wrong.attempt.feedback)))
            <= LONGEST_KEPT
        ][:MOST_KEPT]

    def restore(self, data: Sequence[Sequence[Any]], examples: Callable[[], Sequence[Example]]) -> None:
        """Take up the nearest answers of the cycle before."""
        named = {each.id: each for each in examples()} if data else {}
        for component, problem, score, progress, question, answer, words in data:
            if problem in named:
                lines = read_feedback(component, words, answer, question, self.transcript.parts)
                wrong = Wrong(named[problem], Attempt(question, answer, words, score), score, progress, lines)
                self.wrong.setdefault(component, []).append(wrong)

    def clear(self) -> None:
        self.wrong.clear()
        self.solved.clear()

    def unsolved(self) -> bool:
        """Whether no right answer is known that a text could show."""
        return not self.solved and not any(
            is_right(self.transcript.declared[key][0]) for key in self.transcript.examples
        )

    def corrections(self) -> frozenset[str]:
        """The keys of the wrong answers that texts show."""
        return frozenset(key for key in self.transcript.examples if not is_right(self.transcript.declared[key][0]))

    def gives_away(self, rollout: Rollout) -> bool:
        """Whether the text showed the answer to this very problem."""
        return any(
            problem == rollout.example.id
            and _flat(self.transcript.declared[key][0]) in _flat(rollout.context.texts[component_of(key)])
            for key, problem in self.transcript.examples.items()
        )

    # Trying again ------------------------------------------------------------------------------------------------------

    def again(self, model: Model, count: int) -> list[Try]:
        """While no answer is right and lines are not followed: those that came nearest, under a text that shows the answer
        with the grader's words, or as the grader expects it where the words tell."""
        tried, self._tried = self._tried, {}
        if tried:
            self._fruitless = 0 if self._led_on(model, tried) else self._fruitless + self._tries
        if not self._may_retry() or not (self.unsolved() or (model.scarce and self._pays())):
            return []
        nearest = [(place, wrong) for place, (_, wrong) in self._nearest(model, self._had_tries)]
        copies = {place: copy for place, wrong in nearest if (copy := _as_expected(wrong.attempt))}
        chosen = [each for each in nearest if each[0] in copies][:count] or nearest[:MOST_RETRIED]
        self._tried = dict(chosen)
        self._had_tries.update((*place, wrong.attempt.answer) for place, wrong in chosen)
        tries = chosen if copies or not chosen else list(itertools.islice(itertools.cycle(chosen), count))
        self._left, self._tries = self._left - len(tries), len(tries)
        self._before = {component: len(attempts) for component, attempts in self.wrong.items()}
        return [
            Try(
                place[0],
                wrong,
                to_copy(copies[place]) if copies else another_try(wrong.attempt.answer, wrong.attempt.feedback),
            )
            for place, wrong in tries
        ]

    def _led_on(self, model: Model, tried: Mapping[Place, Wrong]) -> bool:
        """Whether the latest second tries mostly kept what the answers had, and one came further: luck alone goes back more
        often. What stands behind a fault is known only once it was said, so all are judged by what is known now."""
        far = {place: self._far(model, wrong) for place, wrong in tried.items()}
        gains = [
            (self._far(model, each), far[component, each.example.id])
            for component, attempts in self.wrong.items()
            for each in attempts[self._before.get(component, 0) :]
            if (component, each.example.id) in far
        ]
        kept = self.righted + sum(now >= then for now, then in gains)
        return kept >= KEPT * self._tries and (self.righted > 0 or any(now > then for now, then in gains))

    def _pays(self) -> bool:
        """Whether second tries still find right answers, now that texts can show one."""
        rows = [row for row in self.transcript.rows if row.again is not None and row.cycle >= self.cycle - 1]
        return len(rows) < IN_VAIN or any(row.score >= 1 for row in rows[-IN_VAIN:])

    def _may_retry(self) -> bool:
        return self._left >= MOST_RETRIED * TRIES and self._fruitless < FRUITLESS

    def _nearest(
        self, model: Model, but: Set[tuple[str, str, str]] = frozenset()
    ) -> list[tuple[Place, tuple[Far, Wrong]]]:
        """By component and problem: the answer that came nearest, but for these, where lines are not followed; the nearest
        first."""
        tried = {each.example.id for attempts in self.wrong.values() for each in attempts}
        wanting = {problem for problem in tried if model.wanting(problem, model.silent)}
        nearest: dict[Place, tuple[Far, Wrong]] = {}
        for component, attempts in self.wrong.items():
            for each in attempts:
                place = component, each.example.id
                passed_over = place in self.solved or (*place, each.attempt.answer) in but
                if each.lines and each.example.id in wanting and not passed_over:
                    far = self._far(model, each)
                    if place not in nearest or far >= nearest[place][0]:
                        nearest[place] = far, each
        return sorted(nearest.items(), key=lambda each: (*each[1][0], each[0]), reverse=True)

    def _far(self, model: Model, wrong: Wrong) -> Far:
        """How near an answer came: by its score, by the grader's progress, and by what was not said of it."""
        said = self.transcript.statements_in(wrong.lines)
        return wrong.score, wrong.progress, model.reached(wrong.example.id, said)

    # Showing -----------------------------------------------------------------------------------------------------------

    def demonstrate(self, model: Model) -> bool:
        """Enter solved problems whose answers show what no example does yet, or of which something was said that a line in
        the text does not change: an example may say it better. They are judged like lines that say all that was said of the
        problem, and what names something of its answer. Whether any entered."""
        shows = self._news(model)
        found = [
            Candidate(
                *place, demonstration(attempt), model.wanting(place[1], model.scarce), shows.get(place, frozenset())
            )
            for place, attempt in self.solved.items()
        ]
        room = min(MOST_ENTERED, MOST_DEMONSTRATIONS - len(self.transcript.examples))
        return self._enter(found, LONGEST_DEMONSTRATION, room)

    def correct(self, model: Model) -> bool:
        """While no right answer is known and none is tried again: enter one that came near, with what was said of it. Whether
        one entered."""
        if not self.unsolved():
            return False
        corrections = list(self.transcript.examples)
        if len(corrections) == MOST_CORRECTIONS and not self._renewed:  # by now answers begin further on
            self.transcript.withdraw(corrections[0])
        self._renewed = True
        found = [Candidate(*place, correction(wrong.attempt), 1.0) for place, (_, wrong) in self._nearest(model)]
        return self._enter(found, LONGEST_CORRECTION, min(1, MOST_CORRECTIONS - len(self.transcript.examples)))

    def _enter(self, found: Sequence[Candidate], longest: float, room: int) -> bool:
        """Pick examples, each at most this part of a text."""
        taken = {*self.transcript.examples.values()}
        most = longest * self.longest
        free = [each for each in found if each.problem not in taken and self.count_tokens(each.text) <= most]
        entered = picked(free, room)
        if entered and self.solved:  # right ones take the place of wrong ones
            for key in self.corrections():
                self.transcript.withdraw(key)
        for each in entered:
            key = key_of(each.component, each.text)
            self.transcript.declare(key, each.text)
            self.transcript.examples[key] = each.problem
        return bool(entered)

    def _news(self, model: Model) -> dict[Place, frozenset[str]]:
        """What right answers show that no example does, while some lines are not followed."""
        if not self.solved or not any(
            model.wanting(each.example.id, model.scarce) for attempts in self.wrong.values() for each in attempts
        ):
            return {}
        named = naming(model.journal.statements.values(), self.transcript.labels).keys()
        return news(self.solved, named, (self.transcript.declared[key][0] for key in self.transcript.examples))


def _as_expected(attempt: Attempt) -> str | None:
    return mended(attempt.answer, told(attempt.feedback)[:MOST_LINES])


def _flat(text: str) -> str:
    """The words of a text, whatever its lines are indented by."""
    return " ".join(text.split())
