"""What the prompts of a batch begin with alike, so that it is computed once: a context first, then a problem under it.

    contexts    the tokens that several prompts begin with, each once
    problems    what a prompt has beyond its context and before its last token, each (context, problem) once
    rows        one for every completion wanted: its problem, and the prompt's last token, which decoding starts with

Nothing is known here of texts or templates: beginnings are found among the token ids, so whatever prompts share is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class PromptTree:
    """The prompts of a batch as a tree of two levels."""

    contexts: list[Tokens]
    problems: list[Tokens]
    context_of: list[int]
    """Of every problem, its context."""
    problem_of: list[int]
    """Of every row, its problem."""
    last: list[int]
    """Of every row, the last token of its prompt."""
    prompt_of: list[int]
    """Of every row, which of the prompts it is."""

    @property
    def positions(self) -> list[int]:
        """Of every row, where the last token of its prompt stands."""
        ends = [len(self.contexts[c]) + len(p) for c, p in zip(self.context_of, self.problems, strict=True)]
        return [ends[problem] for problem in self.problem_of]


def plant(prompts: Sequence[Sequence[int]]) -> PromptTree:
    """The tree of some prompts; its rows stand so that those of one context, and of one problem, are neighbours."""
    order = sorted(range(len(prompts)), key=lambda index: (tuple(prompts[index]), index))
    bodies = sorted({tuple(prompts[index][:-1]) for index in order})
    contexts: dict[Tokens, int] = {}
    placed: dict[Tokens, tuple[int, int]] = {}
    problems: list[Tokens] = []
    context_of: list[int] = []
    groups = [(group[0][: _common(group[0], group[-1])] if len(group) > 1 else (), group) for group in _share(bodies)]
    for text, group in sorted(groups):
        shared, context = len(text), contexts.setdefault(text, len(contexts))
        # Problems of about one length are computed side by side.
        for body in sorted(group, key=len):
            placed[body] = len(problems), context
            problems.append(body[shared:])
            context_of.append(context)
    rows = sorted(order, key=lambda index: placed[tuple(prompts[index][:-1])])
    return PromptTree(
        contexts=list(contexts),
        problems=problems,
        context_of=context_of,
        problem_of=[placed[tuple(prompts[index][:-1])][0] for index in rows],
        last=[prompts[index][-1] for index in rows],
        prompt_of=rows,
    )


def _share(bodies: Sequence[Tokens]) -> list[Sequence[Tokens]]:
    """Cuts sorted sequences into runs so that sharing within each run saves most tokens over all.

    A run of n that begin with L tokens alike computes those once instead of n times. All of a batch begin alike with the
    chat template's first tokens, so the longest beginning common to all is never the right one for all.
    """
    alike = np.array([0, *(_common(one, other) for one, other in pairwise(bodies))])
    saved, cuts = np.zeros(len(bodies) + 1, dtype=np.int64), [0] * (len(bodies) + 1)
    for end in range(1, len(bodies) + 1):
        # By where the run ending here starts, last first: how many tokens all of it begin with alike.
        shared = np.concatenate([[0], np.minimum.accumulate(alike[end - 1 : 0 : -1])])
        total = saved[end - 1 :: -1][:end] + np.arange(end) * shared
        best = int(total.argmax())
        saved[end], cuts[end] = total[best], end - 1 - best
    runs, end = [], len(bodies)
    while end:
        runs.append(bodies[cuts[end] : end])
        end = cuts[end]
    return runs[::-1]


def _common(one: Tokens, other: Tokens) -> int:
    """How many tokens two sequences begin with alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
