"""The records everything exchanges: a context, one model call, one finished attempt. Frozen; copies, never mutation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Example:
    """One problem. The id is stable across runs and cycles, never a list position; `data` is the task's own."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Feedback:
    """What a grader returns: a score in [0, 1] and words that say what was wrong and what would be right."""

    score: float
    text: str = ""
    by_component: Mapping[str, str] = field(default_factory=dict)
    """Words for one component alone, in place of `text`; empty where the attempt has nothing to teach it."""
    progress: float = 0.0
    """How far an answer got that is not right, from 0 to 1. While no context has led to a right answer the fast loop prefers
    the one under which answers get further: there is nothing else to go by. Nothing is trained on it."""


@dataclass(frozen=True)
class Context:
    """One member of Φ: a text for each component, where it came from and the cycle that made it."""

    texts: Mapping[str, str]
    parents: tuple[str, ...] = ()
    born: int = 0

    @cached_property
    def id(self) -> str:
        """A hash of the texts alone: the same texts are the same context wherever they came from."""
        return hashlib.sha256(json.dumps(sorted(self.texts.items())).encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Sampling:
    """How to draw from the policy."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512


@dataclass(frozen=True)
class Completion:
    """What the model wrote: token ids (end token included) and the log-probability each had when it was drawn."""

    ids: Sequence[int]
    logprobs: Sequence[float]


Finished = Callable[[int, Completion], None]
"""Told of a completion as soon as it is there: the number of its prompt, and what was written."""


@dataclass(frozen=True)
class Turn:
    """One ask and its answer, as tokens and as text; the question is what was asked, without the context."""

    component: str
    question: str
    prompt_ids: Sequence[int]
    completion: Completion
    answer: str


@dataclass(frozen=True)
class Rollout:
    """One attempt at one problem under one context by the policy of one step."""

    example: Example
    context: Context
    policy_step: int
    turns: Sequence[Turn]
    feedback: Feedback
    faults: Mapping[str, int] = field(default_factory=dict)

    @property
    def score(self) -> float:
        return self.feedback.score

    @property
    def progress(self) -> float:
        """How far the answer got."""
        return 1.0 if self.score >= 1 else self.feedback.progress

    @property
    def completion_tokens(self) -> int:
        return sum(len(turn.completion.ids) for turn in self.turns)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(turn.prompt_ids) for turn in self.turns)
