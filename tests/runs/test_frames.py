"""What a run of the whole loop wrote, read back as DataFrames."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_runs import GROUP, PROBLEMS, STEPS, recipe_of
from fake_runs import run as run_loop

from fastslow.base.errors import RunError
from fastslow.runs.folder import RunFolder
from fastslow.runs.frames import DIVERGENCE, Frames, read_divergence, write_csv
from fastslow.runs.ledger import Ledger
from fastslow.runs.lineage import best_context, read_contexts


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("runs") / "fst"
    run_loop(folder, recipe_of(output={"save_rollouts": True}))
    return RunFolder.open(folder)


def test_metrics_have_a_row_a_step(run: RunFolder) -> None:
    frame, rows = Frames(run).metrics, run.rows("metrics")
    assert list(frame["step"]) == list(range(1, STEPS + 1))
    assert list(frame["reward"]) == [row["reward"] for row in rows]
    assert "phases" not in frame
    assert list(frame["seconds.update"]) == [row["phases"]["update"] for row in rows]


def test_evaluations_have_a_row_for_each_context(run: RunFolder) -> None:
    frame, rows = Frames(run).evaluations, run.rows("evals")
    assert len(frame) == sum(len(row["results"]) for row in rows)
    last = frame[frame["step"] == STEPS].set_index("context")
    assert {label: last.loc[label, "mean"] for label in last.index} == {
        label: result["mean"] for label, result in rows[-1]["results"].items()
    }
    assert list(last["context_id"]) == [result["context"] for result in rows[-1]["results"].values()]
    assert list(frame.columns[:4]) == ["step", "context", "mean", "low"]


def test_contexts_have_a_row_each_and_one_is_the_best(run: RunFolder) -> None:
    frame, last = Frames(run).contexts, run.cycles()[-1]
    best = frame[frame["best"]]
    assert list(best["id"]) == [last["best"]]
    assert set(frame[frame["in_pool"]]["id"]) == {member["id"] for member in last["population"]}
    assert list(best["text"]) == list(best_context(run).texts.values())
    assert frame["id"].is_unique


def test_the_ledger_adds_up_to_the_total(run: RunFolder) -> None:
    summed = Frames(run).ledger.groupby("purpose")[["rollouts", "calls", "prompt_tokens"]].sum()
    total = Ledger.from_dict(run.read_json("ledger.json") or {})
    assert summed["rollouts"].to_dict() == {
        purpose: entry["rollouts"] for purpose, entry in total.spent().items() if purpose in summed.index
    }
    assert summed["rollouts"].sum() == total.total().rollouts


def test_rollouts_of_both_loops_are_in_one_table(run: RunFolder) -> None:
    frame = Frames(run).rollouts
    slow, fast = frame[frame["loop"] == "slow"], frame[frame["loop"] == "fast"]
    assert len(slow) == STEPS * PROBLEMS * GROUP
    assert sorted(slow["step"].unique()) == list(range(1, STEPS + 1))
    assert slow["cycle"].isna().all()
    assert set(slow["purpose"]) == {"slow"}
    assert set(fast["purpose"]) <= {"rescore", "fast-minibatch", "fast-score"}
    assert fast["step"].isna().all()
    assert list(frame["question"]) == [questions[0] for questions in frame["questions"]]
    assert list(frame["answer"]) == [answers[-1] for answers in frame["answers"]]
    assert "tokens" not in frame
    by_step = slow.groupby("step")["score"].mean()
    assert list(by_step) == pytest.approx([row["reward"] for row in run.rows("metrics")])


def test_a_run_that_has_only_begun_has_empty_tables(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", recipe_of()) as run:
        for frame in (Frames(run).metrics, Frames(run).evaluations, Frames(run).ledger, Frames(run).rollouts):
            assert frame.empty
            assert "step" in frame
        with pytest.raises(RunError, match="has no contexts yet"):
            _ = Frames(run).contexts
        run.write_json("contexts/seed.json", {"id": "ab", "texts": {"turn": "a", "shift": "b"}})
        (record,) = read_contexts(run)
        assert (record.id, record.best, record.score) == ("ab", True, None)
        frame = Frames(run).contexts
        assert list(frame[["text.turn", "text.shift"]].loc[0]) == ["a", "b"]


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", recipe_of()) as run:
        (run.path / "rollouts").mkdir()
        (run.path / "rollouts" / "step-000001.parquet").write_text("no parquet")
        with pytest.raises(RunError, match=r"step-000001\.parquet' cannot be read"):
            _ = Frames(run).rollouts


def test_what_was_measured_of_a_run_later_is_read_by_step_and_context(tmp_path: Path) -> None:
    assert read_divergence(tmp_path) == {}
    rows = [{"step": 0, "context": "seed", "kl": 0.0}, {"step": 5, "context": "best context", "kl": 0.25}]
    write_csv(tmp_path / DIVERGENCE, rows)
    assert read_divergence(tmp_path) == {(0, "seed"): 0.0, (5, "best context"): 0.25}
