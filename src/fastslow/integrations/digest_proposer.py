"""`digest` as a part of gepa and DSPy: a proposer that reads all feedback so far, and needs no model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastslow.base.world import derive_seed
from fastslow.fast.digest.model import Model
from fastslow.fast.digest.reading import parts_of_texts, read_feedback
from fastslow.fast.digest.transcript import Graded, Transcript
from fastslow.fast.digest.writing import Writer


class DigestProposer:
    """Proposes, for `gepa.optimize` and `dspy.GEPA`, the text that the feedback of all minibatches so far speaks for.

        gepa.optimize(…, custom_candidate_proposer=fastslow.DigestProposer())
        dspy.GEPA(…, instruction_proposer=fastslow.DigestProposer())

    gepa accepts or rejects it by its own scores. A record of the reflective dataset needs "Feedback"; "Score" or "score" is
    read where an adapter gives it, otherwise an answer counts as wrong. `max_tokens` bounds a text, in words unless
    `count_tokens` says how to count.
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

    def __call__(
        self,
        candidate: dict[str, str],
        reflective_dataset: Mapping[str, Sequence[Mapping[str, Any]]],
        components_to_update: list[str],
    ) -> dict[str, str]:
        """New texts for these components."""
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
        texts = model.texts(model.best)
        if all(texts[component] == candidate[component] for component in components_to_update):
            texts = model.texts(model.sampled(self._chance))
        return {component: texts[component] for component in components_to_update}

    def _read(self, component: str, record: Mapping[str, Any], parts: frozenset[str], longer: int) -> None:
        question, answer = (str(record.get(name, "")) for name in ("Inputs", "Generated Outputs"))
        score = float(record.get("Score", record.get("score", 0.0)))
        lines = read_feedback(component, str(record.get("Feedback", "")), answer, question, self._transcript.parts)
        keys = tuple(tuple(part.key for part in line) for line in lines)
        row = Graded(question, parts, longer, score, 0, keys)
        self._transcript.add(row, itertools.chain(*lines), question, answer)
