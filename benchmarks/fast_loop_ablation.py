"""The ideas of `digest`, each of which can be switched off to see what it contributes.

python -m benchmarks.fast_loop run --out RESULTS --optimizers digest --without IDEA …    # on a simulated policy
python -m benchmarks.fast_loop_ablation IDEA train RECIPE …    # on a real one
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from fastslow.fast.digest.effects import Array
from fastslow.fast.digest.model import Choice, Model
from fastslow.fast.digest.transcript import Transcript
from fastslow.fast.optimizers.digest import Digest

DIGEST = "fastslow.fast.digest"
SEARCH = "fastslow.fast.optimizers.digest"


def everywhere(self: Model, present: Array, known: Sequence[frozenset[str]], in_topic: Array) -> tuple[Array, Array]:
    """Every line bears on every problem by its share, whatever was said of the problem."""
    return present * self.shares, np.zeros_like(present)


def luckiest(self: Digest) -> Model:
    """The text with the best mean among those with eight rollouts or more is taken for the best."""
    journal = self.transcript.read()
    model = Model(journal, self.writer, self.cycle)
    means: dict[frozenset[str], list[float]] = {}
    for row in journal.rows:
        means.setdefault(frozenset(row.lines & model.place.keys()), []).append(row.score)
    ranked = {taken: sum(scores) / len(scores) for taken, scores in means.items() if len(scores) >= 8}
    if ranked:
        taken = max(ranked, key=lambda each: ranked[each])
        model.best = Choice(taken, 1.0, 0.1)
    return model


def in_full(self: Model, present: Array, about: Array) -> Array:
    """A line's effect shows whatever else is kept."""
    return np.ones((len(about), len(self.lines)))


ABLATIONS: dict[str, list[tuple[str, Any]]] = {
    "belief": [(f"{DIGEST}.{room}.TRUE_EFFECT", (0.0, 0.15)) for room in ("effects", "model")],
    "judging-where-it-matters": [(f"{DIGEST}.model.Model._bearing", everywhere)],
    "topics": [(f"{DIGEST}.topics.COMMON", 0.0)],
    "doubting-the-grader": [(f"{DIGEST}.support.truth", lambda made, not_made: 0.9)],
    "one-of-rivals": [(f"{DIGEST}.support.rival_truth", lambda made, others: 1.0)],
    "telling-remarks": [(f"{DIGEST}.support.singletons_return", lambda counts: 1.0)],
    "passing-over-verdicts": [(f"{DIGEST}.facts.FILLINGS", 10**9)],
    "merging-restatements": [(f"{DIGEST}.transcript.restatements", lambda texts, frames: {})],
    "comparing-texts": [(f"{SEARCH}.DESIGNS", 1)],
    "posterior-choice": [(f"{SEARCH}.Digest._model", luckiest)],
    "words": [
        (f"{DIGEST}.effects.WORDS", (0.0, 1e-6)),
        (f"{DIGEST}.effects.LEAST_WORDS", -1.0),
        (f"{DIGEST}.choice.PARTLY", 0.0),
        (f"{DIGEST}.model.Model._gate", in_full),
    ],
    "interactions": [
        (f"{DIGEST}.model.Model._gate", in_full),
        (f"{DIGEST}.words.Words.follows", lambda self, journal, about, problems: about),
    ],
    "demonstrations": [(f"{DIGEST}.answers.MOST_DEMONSTRATIONS", 0)],
    "classes": [(f"{DIGEST}.transcript.generalized", lambda variants, problems: ({}, frozenset()))],
    "memory": [(f"{SEARCH}.Transcript.from_data", lambda data: Transcript())],
}
"""What is changed to switch an idea off."""


@contextmanager
def without(idea: str | None) -> Iterator[None]:
    with ExitStack() as stack:
        for target, value in ABLATIONS[idea] if idea else ():
            stack.enter_context(patch(target, value))
        yield


if __name__ == "__main__":
    from fastslow.commands.app import main

    idea, *command = sys.argv[1:]
    if idea not in ABLATIONS:
        sys.exit(f"there is no idea '{idea}'; the ideas are: {', '.join(ABLATIONS)}")
    with without(idea):
        main(command)
