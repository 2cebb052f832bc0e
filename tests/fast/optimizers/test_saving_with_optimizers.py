"""Settings that save rollouts, under every optimizer: which go together, that they do, and how the others are refused."""

from __future__ import annotations

from typing import Any

import pytest
from cycle_helpers import Stage, one_cycle, pool_of, problems
from helpers import EXAMPLE
from optimizer_helpers import OTHERS, each, half

from fastslow.base.errors import RecipeError
from fastslow.fast.memory import Evidence
from fastslow.fast.optimizers.base import Cycle
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Lessons
from fastslow.recipe import FastRecipe, load_recipe
from fastslow.recipe.parts import OPTIMIZER

ANCHORS = problems(12)
ALL: list[str] = list(OPTIMIZER.registry.built_in)
BY_MINIBATCH = ["gepa", "evoprompt", "textgrad", "reflexion", "ace"]
FITTING = {
    "rescore=from-rollouts": ["gepa", "evoprompt"],
    "reuse=true": BY_MINIBATCH,
    "adaptive=true": ALL,
}
"""Which optimizers a setting goes with."""


@pytest.mark.parametrize("setting", FITTING)
@pytest.mark.parametrize("optimizer", ALL)
def test_a_setting_goes_with_an_optimizer_or_is_refused_in_words(setting: str, optimizer: str) -> None:
    given = [f"fast.optimizer={optimizer}", f"fast.{setting}", "fast.budget=800"]
    if optimizer in FITTING[setting]:
        assert load_recipe(EXAMPLE, given).fast.optimizer.name == optimizer
    else:
        with pytest.raises(RecipeError) as refused:
            load_recipe(EXAMPLE, given)
        message = str(refused.value)
        assert f"fast.{setting} cannot be combined with fast.optimizer={optimizer}; " in message
        assert f"fast.optimizer to one of {', '.join(FITTING[setting])}" in message
        assert load_recipe(EXAMPLE, [*given, "method=rl"])  # which has no fast loop


def test_a_budget_that_may_shrink_has_to_pay_for_a_text_when_it_is_smallest() -> None:
    assert load_recipe(EXAMPLE, ["fast.adaptive=true", "fast.budget=40"])  # gepa begins with whatever there is
    with pytest.raises(RecipeError, match=r"fast\.budget=40, of which fast\.adaptive may leave 5, does not cover"):
        load_recipe(EXAMPLE, ["fast.adaptive=true", "fast.budget=40", "fast.optimizer=opro"])


@pytest.mark.parametrize("setting", ["reuse=true", "rescore=from-rollouts"])
def test_a_slow_loop_that_plays_under_the_seed_text_refuses_what_needs_rollouts_under_the_contexts(
    setting: str,
) -> None:
    with pytest.raises(RecipeError, match=rf"fast\.{setting} cannot be combined with method=distill"):
        load_recipe(EXAMPLE, ["method=distill", f"fast.{setting}"])
    assert load_recipe(EXAMPLE, ["method=distill", "fast.adaptive=true"])


# Cycles ----------------------------------------------------------------------------------------------------------------


def cycle(stage: Stage, pool: Pool, optimizer: str, budget: int = 120, **fast: Any) -> Cycle:
    evidence = None
    if fast.get("rescore") == "from-rollouts":
        evidence = Evidence(stage._rollout(e, member.context) for e in ANCHORS for member in pool.members)
    recipe = FastRecipe(optimizer=optimizer, **{"population": 4, "budget": 1000, **fast})
    return one_cycle(recipe, Lessons(), stage.play, pool, ANCHORS, policy_step=6, budget=budget, evidence=evidence)


def carried() -> Pool:
    return pool_of("A\nThink.", "B\nWrite the answer.", "C")


@each(*OTHERS)
def test_the_allowance_is_the_budget(optimizer: str) -> None:
    """The recipe's own would last for much longer."""
    stage = Stage(half)
    found = cycle(stage, carried(), optimizer, budget=60)
    assert 0 < stage.fast <= 60
    assert found.edits


def test_evoprompt_takes_scores_from_rollouts() -> None:
    stage = Stage(half)
    found = cycle(stage, carried(), "evoprompt", rescore="from-rollouts")
    assert set(stage.booked) == {"fast-score"}
    assert found.reused == {"rescore": 36}
    assert any(edit.accepted for edit in found.edits)


@each(*[name for name in BY_MINIBATCH if name != "gepa"])
def test_what_may_be_trained_on_is_not_what_the_proposer_reads(optimizer: str) -> None:
    """Of what it was scored by, no answer reaches a proposer; of its minibatches it does, for those who read them."""

    class Marked(Stage):
        def play(self, pairs: Any, purpose: str, seed: int) -> Any:
            self.purpose = purpose
            return super().play(pairs, purpose, seed)

        def _rollout(self, example: Any, context: Any) -> Any:
            rollout = super()._rollout(example, context)
            feedback = type(rollout.feedback)(rollout.score, f"drawn for {self.purpose}")
            return type(rollout)(rollout.example, rollout.context, rollout.policy_step, rollout.turns, feedback)

    found = cycle(Marked(half), carried(), optimizer, reuse=True)
    told = [words for edit in found.edits for words in edit.feedback]
    assert set(told) <= {"drawn for fast-minibatch"}
    assert bool(told) == (optimizer != "evoprompt")
    texts = [text for context in found.contexts for text in context.texts.values()]
    assert not any("drawn for rescore" in text or "drawn for fast-score" in text for text in texts)
