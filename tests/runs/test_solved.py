"""Which saved rollouts count as solved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import EXAMPLE
from run_helpers import make_rollout

from fastslow.base.errors import RunError
from fastslow.recipe import load_recipe
from fastslow.records import Completion, Rollout
from fastslow.runs.folder import RunFolder
from fastslow.runs.rollout_files import read_solved


def rollout(example: str, answer: int, step: int, score: float = 1.0, **faults: int) -> Rollout:
    made = make_rollout(example, score)
    turns = [replace(turn, completion=Completion([answer, 2], [-0.1, -0.2])) for turn in made.turns]
    return replace(made, policy_step=step, turns=turns, faults=faults)


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", load_recipe(EXAMPLE))


def answers(run: RunFolder, least: float | None = 1.0, most: int = 9) -> dict[str, list[int]]:
    return {
        example: [each.turns[0].completion.ids[0] for each in found]
        for example, found in read_solved(run, least, most).items()
    }


def test_solved_rollouts_of_both_loops_come_newest_first_and_only_once(run: RunFolder) -> None:
    run.save_rollouts(2, [rollout("a", 5, 1), rollout("a", 6, 1, 0.5), rollout("b", 7, 1)])
    run.save_rollouts(3, [rollout("a", 8, 2), rollout("a", 5, 2), rollout("a", 9, 2, truncated=1)])
    run.save_rollouts(1, [rollout("a", 4, 2), rollout("c", 4, 2, 0.9)], ["fast-score"] * 2, of="cycle")  # before step 3
    assert answers(run) == {"a": [8, 5, 4], "b": [7]}
    assert answers(run, most=2) == {"a": [8, 5], "b": [7]}
    assert answers(run, least=0.5) == {"a": [8, 5, 4, 6], "b": [7], "c": [4]}
    (first, *_) = read_solved(run, 1.0, 1)["a"]
    assert first.policy_step == 2
    assert [(turn.component, turn.answer) for turn in first.turns] == [("system", "an answer")]


def test_a_run_without_solved_rollouts_is_refused(run: RunFolder) -> None:
    with pytest.raises(RunError, match=r"no saved rollouts; .* output.save_rollouts=true"):
        read_solved(run, 1.0, 4)
    run.save_rollouts(1, [rollout("a", 5, 1, 0.25)])
    with pytest.raises(RunError, match=r"a score of at least 1 \(the highest is 0.25\).* --score"):
        read_solved(run, 1.0, 4)


def test_without_a_lowest_score_the_best_of_each_problem_counts(run: RunFolder) -> None:
    older = [rollout("a", 5, 1, 0.8), rollout("a", 6, 1, 0.8), rollout("b", 7, 1), rollout("c", 3, 1, 0.0)]
    run.save_rollouts(2, [*older, rollout("d", 8, 1, 0.4)])
    run.save_rollouts(3, [rollout("a", 9, 2, 0.3), rollout("b", 4, 2, 0.9), rollout("d", 5, 2, 0.6, truncated=1)])
    assert answers(run, None) == {"a": [5, 6], "b": [7], "d": [8]}
    assert [each.score for each in read_solved(run, None, 1)["a"]] == [0.8]


def test_a_run_that_never_scored_has_nothing_to_learn_from(run: RunFolder) -> None:
    run.save_rollouts(1, [rollout("a", 5, 1, 0.0)])
    with pytest.raises(RunError, match=r"has a score above 0 \(the highest is 0\).*nothing to learn from$"):
        read_solved(run, None, 4)


def test_a_damaged_table_is_named(run: RunFolder) -> None:
    run.save_rollouts(1, [rollout("a", 5, 1)])
    (run.path / "rollouts" / "step-000001.parquet").write_bytes(b"no parquet")
    with pytest.raises(RunError, match=r"step-000001.parquet' cannot be read"):
        read_solved(run, 1.0, 4)
