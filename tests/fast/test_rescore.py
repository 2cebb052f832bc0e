"""Where the scores of a cycle come from: which contexts are played, which are not, and what that does to the front."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from cycle_helpers import Scripted, Stage, add_counter, by_text, knows_rule, one_cycle, pool_of, problems
from fake_runs import recipe_of
from helpers import with_parts

from fastslow.fast.evolution import choose_anchors
from fastslow.fast.memory import Evidence, Memory
from fastslow.fast.optimizers.base import Cycle
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Lessons, Reflector
from fastslow.recipe import FastRecipe
from fastslow.records import Rollout
from fastslow.tasks import Example

TRAINED, AHEAD = problems(12), [Example(f"next-{e.id}", e.data) for e in problems(12)]
GROUP = 4


class Loop:
    """Both loops without a model: cycles on what is ahead, and slow steps whose rollouts only leave evidence."""

    def __init__(self, stage: Stage, reflector: Reflector, pool: Pool, **fast: Any) -> None:
        self.stage, self.pool, self.reflector = stage, pool, reflector
        self.recipe = FastRecipe(**with_parts({"population": 2, "budget": 60, "anchors": 12, "cycle": 3, **fast}))
        self.memory = Memory(self.recipe, reads=self.recipe.rescore == "from-rollouts")

    def train(self, examples: list[Example]) -> list[Rollout]:
        """Slow rollouts, at this policy step, of every problem under the contexts in use."""
        contexts = self.pool.active(GROUP)
        rollouts = [
            self.stage._rollout(example, context)
            for example in examples
            for context in contexts
            for _ in range(GROUP // len(contexts))
        ]
        self.memory.trained(rollouts)
        return rollouts

    def evolve(self, ahead: list[Example], cycle: int = 1) -> Cycle:
        evidence = self.memory.open_cycle(True)
        anchors = choose_anchors(ahead, evidence, self.recipe.anchors)
        found = one_cycle(
            self.recipe,
            self.reflector,
            self.stage.play,
            self.pool,
            anchors,
            cycle=cycle,
            policy_step=self.stage.policy_step,
            evidence=evidence,
        )
        self.memory.close_cycle(found.pool.active(GROUP), ahead, found=False)
        self.pool = found.pool
        return found


def rules() -> Stage:
    return Stage(knows_rule)


def test_scores_on_the_look_ahead_begin_with_its_first_problems() -> None:
    assert choose_anchors([*AHEAD, *AHEAD], None, 5) == AHEAD[:5]
    assert choose_anchors(AHEAD, Evidence(), 20) == AHEAD


# A stale score ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["all", "from-rollouts"])
def test_a_context_that_was_best_under_an_old_policy_and_is_bad_now_leaves_the_front(setting: str) -> None:
    now = {"once best": 0.0, "fair": 0.5}
    stage = Stage(lambda texts, example: now.get(texts["system"], 0.1))
    stage.policy_step = 6
    scores = [{e.id: 1.0 for e in TRAINED}, {e.id: 0.5 for e in TRAINED}]
    pool = pool_of("once best", "fair", scores=scores)
    pool = Pool(tuple(type(m)(m.context, m.scores, 0, front=True, wins=6) for m in pool.members))
    loop = Loop(stage, Scripted(add_counter()), pool, rescore=setting)
    loop.train(TRAINED)
    found = loop.evolve(AHEAD)
    member = by_text(found.pool)
    assert found.pool.best.context.texts["system"] == "fair"
    assert "once best" not in member or not member["once best"].front
    assert member["fair"].front
    assert member["fair"].scored_at == 6


# From rollouts ---------------------------------------------------------------------------------------------------------


def test_from_rollouts_the_first_cycle_plays_and_the_later_ones_do_not() -> None:
    stage = rules()
    loop = Loop(stage, Lessons(), pool_of("Answer."), rescore="from-rollouts", population=2, budget=40)
    loop.evolve(AHEAD, cycle=0)
    assert stage.booked["rescore"] == 12
    anchors = {example for _, _, pairs in stage.calls for _, example in pairs}
    assert anchors == {e.id for e in AHEAD}  # nothing was trained on yet
    stage.policy_step, before = 3, stage.booked["rescore"]
    slow = loop.train(TRAINED)
    calls = len(stage.calls)
    found = loop.evolve(AHEAD, cycle=1)
    assert stage.booked["rescore"] == before
    assert found.reused["rescore"] == len(slow)
    anchors = {example for _, _, pairs in stage.calls[calls:] for _, example in pairs}
    assert anchors <= {e.id for e in TRAINED}  # children meet the problems that their rivals have met
    assert all(set(m.scores) == {e.id for e in TRAINED} for m in found.pool.members)


def test_from_rollouts_parents_and_what_they_got_wrong_are_known() -> None:
    """Only children are played; the reflector reads the slow loop's rollouts, those that failed first."""
    played: Counter[str] = Counter()

    def every_other(texts: Mapping[str, str], example: Example) -> float:
        played[texts["system"] + example.id] += 1
        return float(played[texts["system"] + example.id] % 2)  # right, wrong, right, wrong

    stage, reflector = Stage(every_other), Scripted(add_counter())
    loop = Loop(stage, reflector, pool_of("A", "B"), rescore="from-rollouts", budget=24)
    loop.train(TRAINED)
    found = loop.evolve(AHEAD)
    parents = {m.context.id for m in pool_of("A", "B").members}
    assert not any(context in parents for _, _, pairs in stage.calls for context, _ in pairs)
    assert reflector.requests[0].text in ("A", "B")
    assert all(attempt.score == 0 for attempt in reflector.requests[0].attempts)
    assert [edit.before for edit in found.edits][:1] == [0.5]  # by all draws, not by those that are shown
    assert found.reused["fast-minibatch"] >= 3 * 2


def test_the_problems_trained_on_last_come_first() -> None:
    loop = Loop(rules(), Lessons(), pool_of("A"), rescore="from-rollouts")
    for step, start in enumerate((0, 4, 8)):
        loop.stage.policy_step = step
        loop.train(TRAINED[start : start + 4])
    assert [e.id for e in choose_anchors(AHEAD, loop.memory.evidence, 5)] == [
        e.id for e in [*reversed(TRAINED[8:]), TRAINED[7]]
    ]
    assert len(loop.memory.evidence.rewards()) == 12


def test_a_context_the_slow_loop_did_not_play_is_played() -> None:
    stage = rules()
    loop = Loop(stage, Scripted(add_counter()), pool_of("A", "B", "C"), rescore="from-rollouts", budget=0, population=3)
    loop.train(TRAINED)  # of three contexts two divide the group
    loop.evolve(AHEAD)
    assert stage.booked == {"rescore": 12}
    assert {context for context, _ in stage.calls[0][2]} == {pool_of("C").best.context.id}


def test_where_the_task_changes_the_evidence_is_of_no_use() -> None:
    memory = Memory(FastRecipe(rescore="from-rollouts"), reads=True)
    memory.trained([rules()._rollout(TRAINED[0], pool_of("A").best.context)])
    assert memory.open_cycle(same_task=False) is None
    assert memory.open_cycle(same_task=True) is not None


def test_evidence_is_for_one_cycle_and_without_tokens() -> None:
    loop = Loop(rules(), Lessons(), pool_of("A"), rescore="from-rollouts", budget=0)
    loop.train(TRAINED)
    assert all(not t.prompt_ids and not t.completion.ids for r in loop.memory.evidence.rollouts for t in r.turns)
    assert loop.memory.evidence.rollouts[0].turns[0].answer
    loop.evolve(AHEAD)
    assert not loop.memory.evidence.rollouts
    off = Loop(rules(), Lessons(), pool_of("A"))
    off.train(TRAINED)
    assert not off.memory.evidence.rollouts


def test_loops_that_share_nothing_have_no_memory() -> None:
    sharing: dict[str, Any] = {"rescore": "from-rollouts", "reuse": True, "adaptive": True}
    assert Memory.of(recipe_of("rl", fast=sharing)) is None
    assert Memory.of(recipe_of("fst")) is None
    for name, value in sharing.items():
        memory = Memory.of(recipe_of("fst", fast={name: value}))
        assert memory is not None
        assert memory.reads == (name == "rescore")
    assert Memory.of(recipe_of("gepa", fast={"optimizer": "digest"})) is not None  # it reads rollouts by itself


def test_without_switches_a_cycle_plays_what_it_always_played() -> None:
    """The pairs and the seed of every batch, as they were before there were any switches."""
    stage = rules()
    loop = Loop(stage, Lessons(), pool_of("A", "B"), budget=90, population=4, proposals=2, samples=2)
    loop.evolve(AHEAD)
    assert zlib.crc32(repr(stage.calls).encode()) == 2330783617
