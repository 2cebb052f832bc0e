"""`digest` at work: on a simulated policy, with models that write, with several components, with what the slow loop left."""

from __future__ import annotations

import importlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from cycle_helpers import Scripted, Stage, evolve, pool_of, problems
from cycle_helpers import one_cycle as cycle_of

from fastslow.fast.memory import Evidence
from fastslow.fast.optimizers.base import Cycle
from fastslow.fast.optimizers.digest import FIRST_LOOK
from fastslow.fast.pool import Pool
from fastslow.fast.reflection import Lessons, Reflector, TextRequest
from fastslow.recipe import FastRecipe
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Turn

simulated = importlib.import_module("benchmarks.simulated_policy")


class Simulated:
    """Cycles of `digest` on a simulated policy."""

    def __init__(self, seed: int = 0, **dials: Any) -> None:
        self.world = simulated.World(simulated.Dials(**dials), seed)
        self.policy, self.seed, self.cycle = simulated.Policy(self.world), seed, 0
        self.pool = Pool.from_texts({"system": simulated.SEED_TEXT})

    def evolve(self, budget: int = 170, anchors: int = 96) -> str:
        recipe = FastRecipe(optimizer="digest", population=4, anchors=anchors)
        ahead = [self.world.problem("train", self.cycle * anchors + index) for index in range(anchors)]
        found = cycle_of(
            recipe,
            Lessons(),
            self.policy.play,
            self.pool,
            ahead,
            cycle=self.cycle,
            policy_step=self.cycle,
            seed=self.seed + self.cycle,
            budget=budget,
            count_tokens=simulated.count_tokens,
        )
        self.pool, self.cycle, self.lines = found.pool, self.cycle + 1, found.lines
        return str(found.pool.best.context.texts["system"])

    def share(self, text: str) -> float:
        seed, oracle = self.world.reward(simulated.SEED_TEXT), self.world.reward(self.world.oracle_text)
        return float((self.world.reward(text) - seed) / (oracle - seed))


def test_what_the_grader_says_is_found() -> None:
    shares = [(run := Simulated(seed)).share(run.evolve()) for seed in range(4)]
    assert sum(shares) / 4 > 0.85


def test_remarks_about_single_problems_stay_out() -> None:
    text = Simulated(remarks=1.0).evolve()
    assert "was not for" not in text


def test_rules_that_hurt_leave_again() -> None:
    """All that this grader says is false: at first it is believed, then it is seen to do harm."""
    for seed in range(3):
        run = Simulated(seed, rules=5, wrong=1.0, false_kinds=1)
        first = run.evolve(budget=1)
        assert run.world.reward(first) < run.world.reward(simulated.SEED_TEXT)
        for _ in range(3):
            last = run.evolve()
        assert run.world.reward(last) >= run.world.reward(simulated.SEED_TEXT) - 0.02


def test_what_each_line_brings_is_told() -> None:
    """A cautious estimate: hardly below nothing and at most the effect for true lines, below nothing for most false ones."""
    true, false = [], []
    for seed in range(3):
        run = Simulated(seed, rules=5, wrong=0.3, false_kinds=2, effect=0.5)
        run.evolve()
        run.evolve()
        for each in run.lines:
            assert each.problems > 0
            (true if each.line in run.world.oracle_text.splitlines() else false).append(each.effect)
    assert -0.02 < min(true) <= sum(true) / len(true) < 0.5
    assert sum(false) / len(false) < 0


def test_a_text_that_grew_too_long_for_the_model_shrinks() -> None:
    run = Simulated(rules=20, effect=0.05, room=0.1, crowding=1.0)
    for _ in range(3):
        text = run.evolve()
    assert run.world.reward(text) >= run.world.reward(simulated.SEED_TEXT) - 0.02


def test_one_seed_gives_one_result_and_the_journal_survives_the_disk() -> None:
    one, two = Simulated(5), Simulated(5)
    assert one.evolve() == two.evolve()
    two.pool = Pool.from_dict(json.loads(json.dumps(two.pool.to_dict())))
    assert one.evolve() == two.evolve()


@pytest.mark.parametrize("budget", [1, 17, 100])
def test_the_budget_is_kept_and_the_first_look_is_booked_apart(budget: int) -> None:
    stage = Stage(lambda texts, example: 0.0)
    evolve(stage, Lessons(), pool_of("A"), problems(50), optimizer="digest", budget=budget)
    assert stage.booked["rescore"] == FIRST_LOOK
    assert stage.booked["fast-score"] + stage.booked["fast-minibatch"] <= budget
    assert stage.booked["fast-minibatch"] <= budget / 2
    assert set(stage.booked) <= {"rescore", "fast-score", "fast-minibatch"}


def test_a_text_that_is_always_right_ends_the_cycle() -> None:
    stage = Stage(lambda texts, example: 1.0)
    found = evolve(stage, Lessons(), pool_of("A"), problems(40), optimizer="digest", budget=500)
    assert found.pool.best.context.texts == {"system": "A"}
    assert stage.fast == 0


def test_lines_of_the_first_text_that_do_harm_go_and_the_others_stay() -> None:
    def score(texts: Mapping[str, str], example: Example) -> float:
        return 0.2 if "bad rule 1" in texts["system"] and example.data["hint"] == "rule 1" else 1.0

    class Asked(Stage):
        def _rollout(self, example: Example, context: Context) -> Rollout:
            rollout = super()._rollout(example, context)
            turn = Turn("system", f"asked for rule {example.data['hint'][-1]}", (), Completion((), ()), "x")
            return Rollout(example, context, 0, (turn,), rollout.feedback)

    text = "Task.\nbad rule 1\ngood rule 2"
    found = evolve(Asked(score), Lessons(), pool_of(text), problems(60), optimizer="digest", budget=400)
    lines = found.pool.best.context.texts["system"].splitlines()
    assert "bad rule 1" not in lines
    assert {"Task.", "good rule 2"} <= set(lines)


def test_what_the_slow_loop_drew_is_read_in_place_of_a_first_look() -> None:
    run = Simulated()
    context = run.pool.best.context
    ahead = [run.world.problem("train", index) for index in range(64)]
    slow = run.policy.play([(example, context) for example in ahead for _ in range(2)], "slow", 0)
    booked: list[str] = []

    def play(pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> Sequence[Rollout]:
        booked.append(purpose)
        return run.policy.play(pairs, purpose, seed)

    found = cycle_of(
        FastRecipe(optimizer="digest"),
        Lessons(),
        play,
        run.pool,
        ahead,
        cycle=1,
        policy_step=6,
        budget=16,
        evidence=Evidence(slow),
        count_tokens=simulated.count_tokens,
    )
    assert "rescore" not in booked
    assert found.reused == {"rescore": len(slow)}
    assert run.share(found.pool.best.context.texts["system"]) > 0.8


class Writing:
    """A reflector that writes what a function says of a wish."""

    def __init__(self, answer: str) -> None:
        self.usage, self.answer = Lessons().usage, answer
        self.wishes: list[TextRequest] = []

    def __call__(self, request: Any) -> str:
        raise AssertionError("digest writes wishes")

    def write(self, wish: TextRequest, seed: int) -> str:
        self.wishes.append(wish)
        return self.answer


def one_cycle(reflector: Reflector, score: Any, count: int = 60, **fast: Any) -> Cycle:
    return evolve(Stage(score), reflector, pool_of("A"), problems(count), optimizer="digest", budget=120, **fast)


def test_a_model_reads_counted_statements_and_its_lines_are_judged_by_what_they_stand_for() -> None:
    def score(texts: Mapping[str, str], example: Example) -> float:
        return float("obey rules 0 to 2" in texts["system"])

    reflector = Writing("[1, 2, 3] obey rules 0 to 2\nno number\n[99] unknown number")
    found = one_cycle(reflector, score)
    assert re.search(r"\[\d\] \(of 11 problems.*\) rule 0\n", reflector.wishes[0].prompt)
    assert found.pool.best.context.texts["system"].splitlines()[:2] == ["A", "obey rules 0 to 2"]
    assert "unknown number" not in found.pool.best.context.texts["system"]


def test_a_model_that_fails_leaves_the_statements() -> None:
    def refuse(request: Any) -> str:
        raise AssertionError

    broken = Scripted(refuse)  # it cannot write at all
    found = one_cycle(broken, lambda texts, example: float(example.data["hint"] in texts["system"].splitlines()))
    assert found.faults["reflection_failed"] > 0
    assert found.pool.best.context.texts["system"].splitlines() == ["A", "rule 0", "rule 1", "rule 2"]


def test_without_feedback_nothing_is_read() -> None:
    found = one_cycle(Lessons(), lambda texts, example: 0.0, feedback=False)
    assert found.pool.best.context.texts == {"system": "A"}


def test_words_for_one_component_go_to_that_component() -> None:
    class Two(Stage):
        def _rollout(self, example: Example, context: Context) -> Rollout:
            rollout = super()._rollout(example, context)
            words = {"plan": example.data["hint"], "solve": ""}
            return Rollout(example, context, 0, rollout.turns, Feedback(rollout.score, "", by_component=words))

    stage = Two(lambda texts, example: float(example.data["hint"] in texts["plan"]), ("plan", "solve"))
    pool = pool_of({"plan": "P", "solve": "S"})
    found = evolve(stage, Lessons(), pool, problems(60), optimizer="digest", budget=120)
    assert found.pool.best.context.texts == {"plan": "P\nrule 0\nrule 1\nrule 2", "solve": "S"}


def test_thousands_of_statements_about_one_problem_each_add_nothing() -> None:
    """A grader that tells errors and expected values, and no rules."""
    count = 0

    def play(pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        nonlocal count
        chance, rollouts = random.Random(seed), []
        for example, context in pairs:
            count += 1
            words = "\n".join(f"value {chance.random()} where {chance.random()} was expected" for _ in range(4))
            turn = Turn("system", f"compute {example.id}", (), Completion((), ()), "0")
            rollouts.append(Rollout(example, context, 0, (turn,), Feedback(float(chance.random() < 0.3), words)))
        return rollouts

    recipe = FastRecipe(optimizer="digest", anchors=200)
    found = cycle_of(recipe, Lessons(), play, pool_of("A"), problems(200), budget=800)
    assert found.pool.best.context.texts == {"system": "A"}
    assert count > 800


def test_after_a_change_of_task_the_new_task_s_rules_are_found() -> None:
    run, other = Simulated(1), Simulated(2)
    run.evolve()
    run.world, run.policy = other.world, other.policy
    for _ in range(2):
        text = run.evolve()
    assert run.share(text) > 0.75
