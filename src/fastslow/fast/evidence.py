"""The slow loop's rollouts of the last cycle, used to score the contexts they were sampled under.

Only rollouts sampled by the slow loop count. They were sampled after the contexts had been selected, so their scores have no
selection bias. Reused rollouts of the fast loop are excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from fastslow.fast.reflection import Attempt
from fastslow.records import Completion, Rollout
from fastslow.rollouts.faults import is_faulty
from fastslow.tasks.base import Example


class Evidence:
    """The rollouts of one cycle as texts and scores without tokens, oldest first."""

    def __init__(self, rollouts: Iterable[Rollout] = ()) -> None:
        self.rollouts: list[Rollout] = []
        self.add(rollouts)

    def add(self, rollouts: Iterable[Rollout]) -> None:
        self.rollouts += [_without_tokens(rollout) for rollout in rollouts]

    def until(self, policy_step: int) -> Evidence:
        """The rollouts sampled by the policies up to a step."""
        return Evidence(rollout for rollout in self.rollouts if rollout.policy_step <= policy_step)

    def problems(self, count: int) -> list[Example]:
        """The latest problems, newest first: the policy that answered them is closest to the current one."""
        return list({rollout.example.id: rollout.example for rollout in reversed(self.rollouts)}.values())[:count]

    def of(self, context: str, examples: Iterable[Example]) -> dict[str, list[Rollout]]:
        """A context's rollouts on each of these problems."""
        found: dict[str, list[Rollout]] = {example.id: [] for example in examples}
        for rollout in self.rollouts:
            if rollout.context.id == context and rollout.example.id in found:
                found[rollout.example.id].append(rollout)
        return found

    def rewards(self) -> list[float]:
        """The mean reward of every problem; problems are the independent samples."""
        by_problem: dict[tuple[str, int], list[float]] = {}
        for rollout in self.rollouts:
            by_problem.setdefault((rollout.example.id, rollout.policy_step), []).append(rollout.score)
        return [fmean(scores) for scores in by_problem.values()]


def choose_anchors(ahead: Sequence[Example], evidence: Evidence | None, count: int) -> list[Example]:
    """The problems that contexts are scored on: the first of the look-ahead, which are also the first to be trained on.

    With evidence, the anchors are the latest training problems instead: only those have rollouts of the carried contexts, and
    contexts can only be compared on the same problems.
    """
    if evidence is not None and evidence.rollouts:
        return evidence.problems(count)
    return list({example.id: example for example in ahead}.values())[:count]


def read_attempt(rollout: Rollout, component: str, feedback: bool = True) -> Attempt | None:
    """One component's part of a rollout for the reflector; None if it was never called, has nothing to learn, or its grade is
    faulty.

    `feedback=False` leaves the grader's text out.
    """
    turns = [turn for turn in rollout.turns if turn.component == component]
    if (rollout.turns and not turns) or is_faulty(rollout):
        return None
    own = rollout.feedback.by_component.get(component) if feedback else None
    if own == "":
        return None
    words = rollout.feedback.text if own is None else own
    return Attempt(
        question="\n\n".join(turn.question for turn in turns),
        answer="\n\n".join(turn.answer for turn in turns),
        feedback=words if feedback else "",
        score=rollout.score,
    )


def _without_tokens(rollout: Rollout) -> Rollout:
    empty = Completion((), ())
    turns = tuple(replace(turn, prompt_ids=(), completion=empty) for turn in rollout.turns)
    return replace(rollout, turns=turns)
