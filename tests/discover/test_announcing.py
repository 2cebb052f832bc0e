"""Evaluators that lie, or cannot be repeated: what they say is neither announced nor rewarded."""

from pathlib import Path

import pytest
from discover_helpers import Changes, left, recipe, search_of, write
from fake_runs import resume, run

from fastslow.base.errors import RunError
from fastslow.discover.problem import Scored, load_problem
from fastslow.discover.search import judge
from fastslow.launch.discovery import verified_result
from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.tasks.scripted import scripted_rollout

HEAD = 'goal = "maximize"\nseed = "a b c"\nsuffix = ".txt"\nprompt = "letters: {parent}"\n'
CLOCK = "import time\ndef evaluate(candidate):\n    return time.time() if 'z' in candidate else len(set(candidate.split()))\n"
VERIFY = (
    "def evaluate(candidate):\n    return 100.0 * len(candidate), 'the estimate'\n"
    "def verify(candidate):\n    return float(len(candidate)), 'the exact value'\n"
)


def test_a_score_that_does_not_repeat_is_no_record_and_has_no_reward(tmp_path: Path) -> None:
    task = search_of(write(tmp_path, HEAD + CLOCK))
    example = task.examples("train")[0]
    for answer, score in (("a b z", None), ("a b c d", 4.0)):
        feedback = scripted_rollout(task, example, [answer]).feedback
        assert feedback is not None
        if score is None:
            assert feedback.score == 0
            assert "does not hold: evaluated again it is" in feedback.text
            assert feedback.faults == {"unverified": 1}
        else:
            assert feedback.score > 0
            assert f"It scores {score:g}, and higher is better" in feedback.text


def test_the_exact_value_is_what_counts(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + VERIFY)
    task = search_of(path)
    run(tmp_path / "run", recipe("rl"), Changes(), task=task)
    rows = [row for row in RunFolder.open(tmp_path / "run").rows("candidates") if row.get("checks")]
    assert rows
    assert all(row["score"] == len(row["text"]) and row["first"] == 100 * row["score"] for row in rows)
    assert all(row["words"] == "the exact value" for row in rows)


@pytest.mark.parametrize(
    ("first", "checks", "score", "reason"),
    [
        (1.0, [1.0, 1.0], 1.0, ""),
        (1.0, [1.0, None], None, "unverified"),
        (1.0, [2.0, 2.0], None, "unverified"),
        (1.0, [], 1.0, ""),
        (None, [], None, "score"),
    ],
)
def test_what_holds(
    tmp_path: Path, first: float | None, checks: list[float | None], score: float | None, reason: str
) -> None:
    problem = load_problem(write(tmp_path, HEAD + CLOCK))
    scored = Scored(first, "", "" if first is not None else "score")
    found = judge(problem, scored, [Scored(each) for each in checks])
    assert (found.score, found.reason) == (score, reason)


def test_with_a_tolerance_the_worst_of_the_scores_counts(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, HEAD + "tolerance = 0.1\n" + CLOCK))
    assert judge(problem, Scored(1.0), [Scored(1.05), Scored(0.98)]).score == 0.98
    assert judge(problem, Scored(1.0), [Scored(1.05), Scored(0.8)]).score is None


def test_the_result_is_checked_again_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = recipe("rl").model_dump(mode="json") | {"task": {"name": "discover", "path": "differences"}}
    run(folder, build_recipe(settings), Changes(), task=search_of("differences"))
    found = verified_result(folder)
    assert found.score is not None
    assert found.candidate == (folder / "best.txt").read_text()
    assert RunFolder.open(folder).read_json("best.json")["checked"] == [found.score] * 2  # type: ignore[index]
    (folder / "best.txt").write_text("a b c d e f g h i j k\n")
    with pytest.raises(RunError, match="does not hold: evaluated from scratch"):
        verified_result(folder)


def test_a_better_candidate_that_was_announced_before_a_kill_is_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(folder, recipe("rl"), Changes(), task=search_of("differences"))
    opened = RunFolder.open(folder)
    opened.write_text("best.txt", "a b e k q v y\n")  # of a run whose sampling cannot be repeated
    best = opened.read_json("best.json")
    assert best is not None
    opened.write_json("best.json", {**best, "score": 20.0})
    resume(folder, recipe("rl", slow={"problems": 1, "group": 4, "steps": 5}), Changes(), task=search_of("differences"))
    assert left(folder)["best"]["best.txt"] == "a b e k q v y\n"


def test_a_target_ends_the_search(tmp_path: Path) -> None:
    task = search_of(write(tmp_path, HEAD + "target = 1.0\n" + VERIFY))
    loop, engine = run(tmp_path / "run", recipe("rl"), Changes(), task=task)
    assert loop.state.step == 0
    assert task.memory.done
    assert task.memory.archive.best is not None
    assert not any(name == "sample" for name, _ in engine.events)


def test_a_budget_ends_the_search_and_can_be_raised(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    long = {"slow": {"problems": 1, "group": 4, "steps": 100, "patience": None}}
    task = search_of("differences", evaluations=5)
    run(folder, recipe("rl", **long), Changes(), task=task)
    assert 5 <= task.memory.archive.counts["evaluations"] < 5 + 4
    further = search_of("differences", evaluations=9)
    resume(folder, recipe("rl", **long), Changes(), task=further)
    assert 9 <= further.memory.archive.counts["evaluations"] < 9 + 4
