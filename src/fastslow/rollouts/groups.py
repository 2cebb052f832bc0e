"""Rollouts in play, and the groups that they form."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastslow.records import Completion, Context, Example, Rollout

NOTHING = Completion((), (), ended=False)


@dataclass
class Drawn:
    """What was drawn for a prompt so far."""

    prompt: tuple[int, ...]
    completion: Completion = NOTHING

    def add(self, new: Completion, step: int | None) -> None:
        """Add the tokens that were drawn after these, by the policy of a step if that is to be known."""
        before = self.completion
        steps = () if step is None else (*before.steps, *[step] * len(new.ids))
        self.completion = Completion((*before.ids, *new.ids), (*before.logprobs, *new.logprobs), steps, new.ended)


@dataclass(eq=False)
class Pending:
    """A rollout that is being played."""

    example: Example
    context: Context
    begun: int
    """The step in which it was begun."""
    drawn: list[Drawn] = field(default_factory=list)
    """Unless it is finished: what was drawn, in the order in which it was first asked for."""
    rollout: Rollout | None = None
    """The finished rollout."""
    reused: bool = False
    """It was sampled, and booked, for another purpose."""


@dataclass(eq=False)
class Group:
    """A problem's rollouts in a step."""

    example: Example
    members: list[Pending] = field(default_factory=list)

    @property
    def rollouts(self) -> list[Rollout]:
        """Those that are finished."""
        return [member.rollout for member in self.members if member.rollout]

    @property
    def unfinished(self) -> list[Pending]:
        return [member for member in self.members if member.rollout is None]

    @property
    def informative(self) -> bool:
        return len({rollout.score for rollout in self.rollouts}) > 1
