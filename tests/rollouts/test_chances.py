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


def test_what_was_trained_on_comes_last_and_the_newest_at_the_very_end() -> None:
    chances, problems = Chances(), [Example(name, {}) for name in "abcd"]
    chances.train(["b"], 2)
    chances.train(["a"], 4)
    chances = Chances.from_data(json.loads(json.dumps(chances.to_data())))
    assert [each.id for each in chances.least_trained(problems, 4)] == ["c", "d", "b", "a"]
    assert [each.id for each in chances.least_trained(problems, 3)] == ["c", "d", "b"]
    chances.forget(4 + REMEMBERED)
    assert chances.least_trained(problems, 4) == problems


def test_only_rollouts_of_one_step_say_how_much_a_problem_s_rollouts_differ() -> None:
    """Every problem is failed in the first step and solved in the second: nothing differs within a step."""
    changed, mixed = Chances(), Chances()
    for name in "abcdefgh":
        changed.observe([*seen(name, 0, 0), *seen(name, 1, 1, step=1)])
        mixed.observe([*seen(name, 0, 1), *seen(name, 0, 1, step=1)])
    (decided,) = changed.expect("z", [HERE.id], 1).values()
    (undecided,) = mixed.expect("z", [HERE.id], 1).values()
    assert sum(decided) < 1 < sum(undecided)


def test_it_survives_json() -> None:
    chances = Chances()
    chances.observe([*seen("a", 1, 0), *seen("b", 0.5)])
    again = Chances.from_data(json.loads(json.dumps(chances.to_data())))
    assert again.expect("abc", [HERE.id], 3) == chances.expect("abc", [HERE.id], 3)
