"""`sampling.ahead`: groups are begun before their step, and a step trains on those that are whole.

A step needs P groups. If fewer of those in play are whole, others are begun, those next in the stream, so that P + A are in
play; A is `ahead` times P. As soon as P groups are whole the step is trained, on the first P of them in the order of the
stream. The others stay, and their unfinished answers are continued in a later step (`pausing`).

    position of a group   0 … P − 1 | P … 2P − 1 | 2P …
    its own step          0         | 1          | 2

A group is begun at most ⌈ahead⌉ steps before its own step and trained at most `late` steps after it, so that none is older
than `ahead_age` = ⌈ahead⌉ + late. The step at which a group is due waits for it. At most P groups are due at once: those of
one step. With late = 0 every step trains on its own groups.

Nothing is dropped or drawn again: every group of the stream is trained on once, with all of its rollouts, however long they
are. Groups with long answers are only trained on later. Nothing is begun that is not trained on by the end of the run, of the
stage and, since the contexts change there, of the cycle.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastslow.base.seeds import derive_seed
from fastslow.recipe import Recipe
from fastslow.records import Completion, Context, Example, Part, Rollout
from fastslow.rollouts.cache import RolloutCache
from fastslow.rollouts.pausing import Answer, Attempt, play_until
from fastslow.rollouts.play import Player, Timing
from fastslow.rollouts.stored import from_data, to_data
from fastslow.rollouts.stream import StagedStream, Stream


@dataclass
class Begun:
    """A group in play."""

    example: Example
    attempts: list[Attempt]

    @property
    def whole(self) -> bool:
        return all(attempt.rollout for attempt in self.attempts)

    @property
    def rollouts(self) -> list[Rollout]:
        return [attempt.rollout for attempt in self.attempts if attempt.rollout]

    @property
    def sampled(self) -> list[Rollout]:
        """Those that were not reused."""
        return [attempt.rollout for attempt in self.attempts if attempt.rollout and not attempt.reused]


class Ahead:
    """The groups in play, by their position in the stream."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.problems = recipe, recipe.slow.problems
        self.extra = math.ceil(recipe.sampling.ahead * self.problems)
        self.late = recipe.sampling.oldest - math.ceil(recipe.sampling.ahead)
        self.groups: dict[int, Begun] = {}

    def begin(
        self,
        stream: Stream | StagedStream,
        contexts: Sequence[Context],
        cache: RolloutCache,
        step: int,
        horizon: int,
    ) -> None:
        """Begin the groups that are next in the stream, of this step's stage and of a step before `horizon`, unless enough
        are whole."""
        if self._settled(step, [position for position, group in self.groups.items() if not group.whole]):
            return
        first = step * self.problems + len(self.groups)
        last = min((step + 1) * self.problems + self.extra, horizon * self.problems)
        last = stream.same_stage(step * self.problems, last)
        share = self.recipe.slow.group // len(contexts)
        for position, example in enumerate(stream.take(first, max(last - first, 0)), first):
            pairs = [(example, context) for context in contexts for _ in range(share)]
            claimed = cache.claim(pairs, position // self.problems + self.late)
            attempts = [
                Attempt(*pair, step, rollout=rollout, reused=rollout is not None)
                for pair, rollout in zip(pairs, claimed, strict=True)
            ]
            self.groups[position] = Begun(example, attempts)

    def play(self, player: Player, step: int) -> tuple[list[Begun], Timing]:
        """Play until a step's groups are whole, and take these."""
        open_attempts = [
            (position, attempt)
            for position, group in self.groups.items()
            for attempt in group.attempts
            if attempt.rollout is None
        ]

        def settled(rollouts: Iterable[int]) -> bool:
            return self._settled(step, {open_attempts[rollout][0] for rollout in rollouts})

        timing = Timing()
        if not settled(range(len(open_attempts))):
            timing = play_until(
                player,
                [attempt for _, attempt in open_attempts],
                self.recipe.sampling.training(),
                settled,
                step=step,
                seed=derive_seed(self.recipe.seed, "slow", step),
            )
        taken = [position for position, group in self.groups.items() if group.whole][: self.problems]
        whole = [self.groups.pop(position) for position in taken]
        player.faulty.count([rollout for group in whole for rollout in group.sampled])
        return whole, timing

    def _settled(self, step: int, unfinished: Collection[int]) -> bool:
        """Whether a step has its groups, if those at these positions are not whole."""
        due = (step + 1 - self.late) * self.problems
        return len(self.groups) - len(unfinished) >= self.problems and min(unfinished, default=due) >= due

    def to_data(self) -> dict[str, Any]:
        """The groups as JSON data; problems are found by the positions of their groups."""
        attempts = [attempt for group in self.groups.values() for attempt in group.attempts]
        return {
            "contexts": {each.context.id: asdict(each.context) for each in attempts},
            "finished": to_data([each.rollout for each in attempts if each.rollout]),
            "groups": [
                {
                    "position": position,
                    "attempts": [
                        {
                            "context": each.context.id,
                            "begun": each.begun,
                            "answers": [asdict(answer) for answer in each.answers],
                            "finished": each.rollout is not None,
                            "reused": each.reused,
                        }
                        for each in group.attempts
                    ],
                }
                for position, group in self.groups.items()
            ],
        }

    def restore(self, data: Mapping[str, Any] | None, stream: Stream | StagedStream) -> None:
        """Read what `to_data` returned."""
        if data is None:
            return
        contexts = {
            key: Context(each["texts"], tuple(each["parents"]), each["born"]) for key, each in data["contexts"].items()
        }
        examples = [stream.take(group["position"], 1)[0] for group in data["groups"]]
        finished = iter(from_data(data["finished"], examples))
        for example, group in zip(examples, data["groups"], strict=True):
            attempts = [
                Attempt(
                    example,
                    contexts[each["context"]],
                    each["begun"],
                    [_answer(answer) for answer in each["answers"]],
                    next(finished) if each["finished"] else None,
                    each["reused"],
                )
                for each in group["attempts"]
            ]
            self.groups[group["position"]] = Begun(example, attempts)


def _answer(data: Mapping[str, Any]) -> Answer:
    drawn, ended = data["part"]["completion"], data["part"]["ended"]
    completion = Completion(tuple(drawn["ids"]), tuple(drawn["logprobs"]), tuple(drawn["steps"]))
    return Answer(tuple(data["prompt"]), Part(completion, ended))


def token_ages(rollouts: Iterable[Rollout], step: int) -> dict[int, int]:
    """How many tokens of these rollouts are how many steps older than the policy of a step."""
    ages: Counter[int] = Counter()
    for rollout in rollouts:
        for turn in rollout.turns:
            drawn = turn.completion.steps or [rollout.policy_step] * len(turn.completion.ids)
            ages.update(step - each for each in drawn)
    return dict(sorted(ages.items()))
