"""The same answers under another context."""

from __future__ import annotations

from rollout_helpers import PlanAndDo, ScriptedEngine, contexts, problems

from fastslow.records import Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.base import Ask, Example, Feedback


def player(task: PlanAndDo, max_length: int | None = None) -> tuple[Player, ScriptedEngine]:
    engine = ScriptedEngine(max_length=max_length)
    return Player(task, engine, engine.chat), engine


def test_the_prompts_are_those_of_the_other_context_after_the_same_answers() -> None:
    playing, sampler = player(PlanAndDo())
    seed, first, second = contexts(3)
    examples = problems([1, 2, 3])
    rollouts, _ = playing.play([(example, seed) for example in examples], Sampling(), policy_step=0, seed=0)
    asked = len(sampler.calls)
    prompts = playing.replay(rollouts, [first, second, first])
    assert len(sampler.calls) == asked  # nothing is sampled
    shown = [[sampler.tokenizer.decode(list(prompt)) for prompt in each or []] for each in prompts]
    said = "a"  # what the seed's student answered, though the teachers' texts begin with b and c
    assert shown == [
        ["<system> b <end> <user> red <end> <assistant>"],
        [
            "<system> c <end> <user> green <end> <assistant>",
            f"<system> c go <end> <user> green {said} <end> <assistant>",
        ],
        [
            "<system> b <end> <user> blue <end> <assistant>",
            f"<system> b go <end> <user> blue {said} <end> <assistant>",
            f"<system> b <end> <user> blue {said} {said} <end> <assistant>",
        ],
    ]


def test_under_its_own_context_a_rollout_has_its_own_prompts() -> None:
    playing, _ = player(PlanAndDo())
    (seed,) = contexts(1)
    rollouts, _ = playing.play([(example, seed) for example in problems([2, 0])], Sampling(), policy_step=0, seed=0)
    own = [[turn.prompt_ids for turn in rollout.turns] for rollout in rollouts]
    assert playing.replay(rollouts, [seed, seed]) == own


def test_what_cannot_be_replayed_is_none() -> None:
    class Moody(PlanAndDo):
        """Plays on under the first context only."""

        def play_under(self, example: Example, texts):
            if texts != contexts(1)[0].texts:
                if example.data["index"]:
                    raise ValueError("not today")
                yield Ask("plan", [{"role": "user", "content": "red"}])
                return Feedback(1.0)
            return (yield from self.play(example))

    playing, _ = player(Moody())
    seed, other = contexts(2)
    rollouts, _ = playing.play([(example, seed) for example in problems([2, 2])], Sampling(), policy_step=0, seed=0)
    assert playing.replay(rollouts, [other, other]) == [None, None]
    playing.engine.max_length = 5  # too short for any prompt
    assert playing.replay(rollouts, [seed, seed]) == [None, None]
