"""What the task needs of an environment, whichever of the library's two interfaces it was written for."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from fastslow.base.text import one_line
from fastslow.tasks.adapters.verifiers_env.chat import Policy

Part = Literal["train", "evaluation"]


@dataclass(frozen=True)
class Problem:
    """One row of an environment: a name that comes from its content, what is shown, and the library's own object."""

    id: str
    system: str | None
    question: str
    row: Any
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Reward:
    """What one reward function gave, how much it counts, and what its author wrote about it."""

    name: str
    value: float
    weight: float
    about: str = ""


@dataclass(frozen=True)
class Outcome:
    """A played and scored problem. `said` is what the environment itself has to say about it, `form` the form it reads
    answers in."""

    reward: float
    rewards: Sequence[Reward]
    stop: str | None = None
    said: str = ""
    form: str = ""


class Environment(Protocol):
    """An environment that is loaded."""

    def problems(self, limit: int | None) -> dict[Part, list[Problem]]:
        """Its rows, those it keeps for evaluation apart where it has any."""

    async def play(self, problem: Problem, policy: Policy, words: str) -> Outcome:
        """One rollout, scored; `words` names the entry in which the environment leaves words about it."""


def first_paragraph(function: Any) -> str:
    """What a function says about itself."""
    return one_line((inspect.getdoc(function) or "").partition("\n\n")[0])
