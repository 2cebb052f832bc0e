"""Data records: problem, component, context, turn, rollout. Frozen: change a copy (`dataclasses.replace`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self


class Record:
    """Base of what never changes, so that a copy of what holds it can share it."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self


@dataclass(frozen=True)
class Example(Record):
    """One problem. The id is stable across runs and cycles, never a list position; only the task interprets `data`."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Feedback:
    """What a grader returns: a score in [0, 1], and text that says what was wrong and what would be right."""

    score: float
    text: str = ""
    by_component: Mapping[str, str] = field(default_factory=dict)
    """Text for one component, used instead of `text`; empty if the rollout has nothing to teach that component."""
    progress: float = 0.0
    """How close a wrong answer came, from 0 to 1. The fast loop compares contexts by it while none has led to a right answer.
    It is not used as a reward."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """What went wrong in the rollout, counted by name, where its grade is right nevertheless."""
    error: str = ""
    """More about the faults: for people, never for a reflector."""
    rewards: Sequence[float] = ()
    """What each turn was rewarded with, in the order of the asks, on any scale: for `slow.credit`."""
    states: Sequence[str] = ()
    """A name for the state in which each turn was asked: equal states have equal names."""
    masked: Sequence[str] = ()
    """Why each turn is not trained; empty for those that are."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """What the score is made of, by name and on any scale, such as what each of several reward functions gave."""


@dataclass(frozen=True)
class Component:
    """A part of the program that evolves; asks and contexts name it."""

    name: str
    kind: str = "prompt"
    """How a text of it is checked, shown to a reflector and asked for (fast/reflection/base.py); `skill` and `skills` are
    loaded on demand (tasks/skills.py)."""
    seed: str = ""
    """The text it starts from."""
    signature: str = ""
    """Of code: the function that it must define, such as `solve(problem, ask, tools)`."""
    about: str = ""
    """Of code: what it may use and within which limits, for the model that revises it."""
    check: Callable[[str], str | None] | None = None
    """Of code: the task's test of a proposal before any rollout is spent on it. Returns what is wrong, None if nothing is."""


@dataclass(frozen=True)
class Context(Record):
    """One member of Φ: a text for each component, the ids of its parents, and the cycle it was proposed in."""

    texts: Mapping[str, str]
    parents: tuple[str, ...] = ()
    born: int = 0

    @cached_property
    def id(self) -> str:
        """A hash of the texts only: equal texts are the same context, whatever their parents."""
        return hashlib.sha256(json.dumps(sorted(self.texts.items())).encode()).hexdigest()[:10]


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512


@dataclass(frozen=True)
class Completion(Record):
    """A sampled completion: token ids (end token included) and the log-probability of each when it was sampled."""

    ids: Sequence[int]
    logprobs: Sequence[float]
    steps: Sequence[int] = ()
    """The step of the policy that drew each token; empty if all are of the rollout's `policy_step`."""
    ended: bool = True
    """It is finished: it has an end token, or as many tokens as it may have. False if sampling stopped before."""


Enough = Callable[[Sequence[int]], bool]
"""Whether sampling may stop, given the indexes of the prompts whose completions are not finished."""
Ready = Callable[[int, Completion], None]
"""Callback with the index of a prompt and its finished completion, called from any thread."""


@dataclass(frozen=True)
class Turn:
    """One model call, as tokens and as text; `question` excludes the context."""

    component: str
    question: str
    prompt_ids: Sequence[int]
    completion: Completion
    answer: str
    shown: Mapping[str, str] | None = None
    """What stood of the context's texts in front of the question, by component; None where that was all of the text."""


@dataclass(frozen=True)
class Rollout(Record):
    """One attempt at a problem under a context."""

    example: Example
    context: Context
    policy_step: int
    """The step of the policy that drew it; with `sampling.ahead` the step in which it was begun (see `Completion.steps`)."""
    turns: Sequence[Turn]
    feedback: Feedback
    faults: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    """Why the grade is faulty: for people, never for a reflector."""

    @property
    def score(self) -> float:
        return self.feedback.score

    @property
    def in_play(self) -> Mapping[str, str]:
        """The context's texts, as far as they stood in front of a question of this rollout."""
        if all(turn.shown is None for turn in self.turns):
            return self.context.texts
        lines: dict[str, dict[str, None]] = {}
        for turn in self.turns:
            whole = {name: self.context.texts[name] for name in {turn.component} & self.context.texts.keys()}
            for name, text in (whole if turn.shown is None else turn.shown).items():
                lines.setdefault(name, {}).update(dict.fromkeys(text.splitlines()))
        return {name: "\n".join(each) for name, each in lines.items()}

    @property
    def progress(self) -> float:
        """How close the answer came; 1 if it is right."""
        return 1.0 if self.score >= 1 else self.feedback.progress

    @property
    def completion_tokens(self) -> int:
        return sum(len(turn.completion.ids) for turn in self.turns)

    @property
    def trained(self) -> list[int]:
        """The places of the turns that are not masked."""
        masked = self.feedback.masked
        return [place for place in range(len(self.turns)) if place >= len(masked) or not masked[place]]

    @property
    def prompt_tokens(self) -> int:
        return sum(len(turn.prompt_ids) for turn in self.turns)
