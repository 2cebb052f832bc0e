"""What rollouts say about a problem's chance of success."""

from __future__ import annotations

import json

import pytest

from fastslow.records import Context, Feedback, Rollout
from fastslow.rollouts.chances import HALF_LIFE, OTHER_TEXT, REMEMBERED, Chances
from fastslow.tasks.base import Example

HERE, GONE = Context({"system": "here"}), Context({"system": "gone"})


def seen(problem: str, *scores: float, context: Context = HERE, step: int = 0) -> list[Rollout]:
    return [Rollout(Example(problem, {}), context, step, (), Feedback(score, "")) for score in scores]


def mean(beta: tuple[float, float]) -> float:
    return beta[0] / sum(beta)


def test_what_is_not_known_is_expected_to_be_like_the_others() -> None:
    chances = Chances()
    chances.observe([*seen("hard", 0, 0, 0, 0), *seen("easy", 1, 1, 1, 1), *seen("hard too", 0, 0, 0, 0)])
    found = chances.expect(["hard", "easy", "new"], [HERE.id], 0)
    assert mean(found["hard"]) < mean(found["new"]) < mean(found["easy"])
    assert mean(found["new"]) == pytest.approx(5 / 14)


def test_where_rollouts_of_a_problem_agree_a_few_decide_it() -> None:
    agreeing, mixed = Chances(), Chances()
    for name in "abcdefgh":
        agreeing.observe(seen(name, *([float(name in "aceg")] * 4)))
        mixed.observe(seen(name, 0, 1, 0, 1))
    beta, other = (chances.expect(["new"], [HERE.id], 0)["new"] for chances in (agreeing, mixed))
    assert mean(beta) == pytest.approx(mean(other)) == pytest.approx(0.5)
    assert sum(beta) < 1
    assert sum(other) > 3


def test_age_and_other_texts_count_less_and_what_is_old_is_forgotten() -> None:
    chances = Chances()
    chances.observe(
        [*seen("a", 1), *seen("b", 1, step=int(HALF_LIFE)), *seen("c", 1, context=GONE, step=int(HALF_LIFE))]
    )
    found = chances.expect("abcd", [HERE.id], int(HALF_LIFE))
    evidence = {name: sum(beta) - sum(found["d"]) for name, beta in found.items()}
    assert evidence == pytest.approx({"a": 0.5, "b": 1.0, "c": OTHER_TEXT, "d": 0.0})
    chances.forget(int(REMEMBERED))
    assert set(chances.to_data()["seen"]) == {"b", "c"}


def test_what_was_trained_on_is_left_out_until_the_next_cycle() -> None:
    chances, problems = Chances(), [Example(name, {}) for name in "abc"]
    chances.train(["a"], 2)
    chances.train(["b"], 4)
    chances = Chances.from_data(json.loads(json.dumps(chances.to_data())))
    assert [each.id for each in chances.untrained(problems, since=4)] == ["a", "c"]
    assert [each.id for each in chances.untrained(problems, since=0)] == ["c"]


def test_it_survives_json() -> None:
    chances = Chances()
    chances.observe([*seen("a", 1, 0), *seen("b", 0.5)])
    again = Chances.from_data(json.loads(json.dumps(chances.to_data())))
    assert again.expect("abc", [HERE.id], 3) == chances.expect("abc", [HERE.id], 3)
