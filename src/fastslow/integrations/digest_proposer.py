"""`digest` as a part of gepa and DSPy: a proposer that reads all feedback so far, and needs no model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastslow.base.errors import TaskError
from fastslow.base.world import derive_seed
from fastslow.fast.digest.journal import Statement, key_of
from fastslow.fast.digest.model import Choice, Model
from fastslow.fast.digest.reading import parts_of, parts_of_texts, read_feedback
from fastslow.fast.digest.transcript import Graded, Transcript
from fastslow.fast.digest.writing import Writer

DRAWS = 12
"""Texts that are drawn where the best one was proposed before."""
LEAST_WORDS = 3
"""Words of a sentence that may explain a failure: "Wrong." and "Not right." do not."""
FEEDBACK, SCORE = "Feedback", "Score"
"""What is read of a record beside its inputs and outputs, in this spelling or in lower case."""


class DigestProposer:
    """Proposes, for `gepa.optimize` and `dspy.GEPA`, the text that the feedback of all minibatches so far speaks for.

        gepa.optimize(…, custom_candidate_proposer=fastslow.DigestProposer())
        dspy.GEPA(…, instruction_proposer=fastslow.DigestProposer())

    gepa accepts or rejects it by its own scores. A text is proposed once from the same parent; where there is none left, the
    parent's comes back. A record of the reflective dataset needs "Feedback"; "Score" is read where an adapter gives it,
    otherwise an answer counts as wrong. What is said of answers with a score of 1 is only used while no failure is explained.
    `max_tokens` bounds a text, in words unless `count_tokens` says how to count.
    """

    def __init__(
        self,
        max_tokens: int = 1024,
        count_tokens: Callable[[str], int] = lambda text: len(text.split()),
        seed: int = 0,
    ) -> None:
        self.max_tokens, self.count_tokens = max_tokens, count_tokens
        self._chance = np.random.default_rng(derive_seed(seed, "digest-proposer"))
        self._transcript, self._base = Transcript(), dict[str, str]()
        self._blamed = False
        """A failure was explained."""
        self._proposed: dict[tuple[tuple[str, str], ...], set[tuple[str, ...]]] = {}
        """By parent: what was proposed for it."""
        self._last: dict[str, str] = {}

    def __call__(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """New texts for these components."""
        for component in components_to_update:
            for record in reflective_dataset.get(component, ()):
                _require_feedback(component, record)
        for component, text in candidate.items():
            self._base.setdefault(component, text)
        writer = Writer(self._base, self.max_tokens, self.count_tokens)
        for key, line in writer.loose.items():
            self._transcript.declare(key, line)
        longer = sum(map(self.count_tokens, candidate.values())) - sum(map(self.count_tokens, self._base.values()))
        for component in components_to_update:
            for record in reflective_dataset.get(component, ()):
                self._read(component, record, parts_of_texts(candidate), longer)
        self._transcript.forget()
        model = Model(self._transcript.read(), writer, 0)
        known = self._proposed.setdefault(tuple(sorted(candidate.items())), set())
        known.add(tuple(candidate[component] for component in components_to_update))
        for choice in self._choices(model):
            texts = model.texts(choice)
            found = tuple(texts[component] for component in components_to_update)
            if found not in known and all(self.count_tokens(text) <= self.max_tokens for text in found):
                known.add(found)
                break
        else:
            found = tuple(candidate[component] for component in components_to_update)
        proposed = dict(zip(components_to_update, found, strict=True))
        self._last = {**candidate, **proposed}
        return proposed

    def report(self, candidate: Mapping[str, str] | None = None) -> dict[str, dict[str, list[str]]]:
        """Why each line is there: by component and line of a candidate, by default of the latest proposal, the inputs of the
        records of which it was said. A line that nobody said, such as those of the seed candidate, has none."""
        statements = self._transcript.read().statements
        shown = self._last if candidate is None else candidate
        return {
            component: {line: self._said(component, line, statements) for line in text.splitlines() if line.strip()}
            for component, text in shown.items()
        }

    def _said(self, component: str, line: str, statements: Mapping[str, Statement]) -> list[str]:
        """The inputs of the records of which a line was said."""
        if (made := statements.get(key_of(component, line))) and made.problems:
            return [name for name, count in made.problems.items() for _ in range(count)]
        # A line of an earlier text: its sentences may since have been said apart.
        parts = {part.key for part in parts_of(component, line)}
        return [row.problem for row in self._transcript.rows if parts and parts <= {*itertools.chain(*row.said)}]

    def _choices(self, model: Model) -> Iterator[Choice]:
        """The best text, draws from the posterior, and the best text with one line more or less, the most promising first."""
        yield model.best
        for _ in range(DRAWS):
            yield model.sampled(self._chance)
        near = [model.judged(model.best.taken ^ {line.key}) for line in model.lines]
        yield from sorted(near, key=lambda choice: -choice.gain)

    def _read(self, component: str, record: Mapping[str, Any], parts: frozenset[str], longer: int) -> None:
        question, answer = (str(record.get(name, "")) for name in ("Inputs", "Generated Outputs"))
        score = float(_value(record, SCORE) or 0.0)
        lines = read_feedback(component, str(_value(record, FEEDBACK)), answer, question, self._transcript.parts)
        explained = any(len(part.text.split()) >= LEAST_WORDS for line in lines for part in line)
        if score < 1 and explained and not self._blamed:
            self._blamed = True
            rows = self._transcript.rows
            self._transcript.rows = [replace(row, said=()) if row.score >= 1 else row for row in rows]
        if score >= 1 and self._blamed:  # what is right needs no rule
            lines = []
        keys = tuple(tuple(part.key for part in line) for line in lines)
        row = Graded(question, parts, longer, score, 0, keys)
        self._transcript.add(row, itertools.chain(*lines), question, answer)


def _value(record: Mapping[str, Any], name: str) -> Any:
    return record.get(name, record.get(name.lower()))


def _require_feedback(component: str, record: Mapping[str, Any]) -> None:
    if _value(record, FEEDBACK) is None:
        raise TaskError(
            f"a record of the reflective dataset for '{component}' has no '{FEEDBACK}', only {', '.join(map(str, record))}; "
            f"let the adapter's make_reflective_dataset give each '{FEEDBACK}', the grader's words, and '{SCORE}'"
        )
