"""Whole runs of the task in examples/own-task: both loops together, each alone, interrupted and disturbed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from forked import fork, type_in
from helpers import BRIEF, EXAMPLE, outcome
from openai_server import OpenAIServer

from fastslow.base.errors import RecipeError, RunError
from fastslow.commands.app import main
from fastslow.engine.local import engine as local_engine
from fastslow.engine.local.trainer import Trainer
from fastslow.launch import finishing, start
from fastslow.launch.assembly import changed
from fastslow.launch.evaluate import evaluate_run
from fastslow.models.load import load_pretrained, load_to_ask
from fastslow.recipe import load_recipe
from fastslow.rollouts.play import GradingError
from fastslow.runs.folder import RunFolder

EVALUATED = "evaluation.every=6"
SAVED = (*BRIEF, "method=rl", "slow.steps=2", "output.checkpoint_every=1", "evaluation.every=0")
"""Two steps and a checkpoint after each."""
ONE_EDIT = (*BRIEF, "fast.optimizer.proposals=1", "fast.budget=8", "slow.steps=1")
"""For reflectors that take their time."""


def run(folder: Path, *overrides: str) -> Path:
    return start.train(load_recipe(EXAMPLE, overrides), folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, run once, and measured before and after."""
    return run(tmp_path_factory.mktemp("runs") / "fst", EVALUATED)


@pytest.fixture(scope="module")
def resumable(by_words: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with a tiny model, for what does not depend on how much is learnt."""
    return run(tmp_path_factory.mktemp("runs") / "tiny", EVALUATED, *by_words)


def test_the_fast_loop_raises_reward_above_what_the_seed_text_gives(finished: Path) -> None:
    evaluations = RunFolder.open(finished).rows("evals")
    first, last = evaluations[0]["results"], evaluations[-1]["results"]
    assert list(first) == ["seed"]
    assert last["best context"]["mean"] > last["seed"]["mean"] + 0.25
    assert last["best context"]["mean"] > first["seed"]["mean"] + 0.25


def test_every_group_mixes_its_contexts_and_every_rollout_is_booked(finished: Path) -> None:
    opened = RunFolder.open(finished)
    rows, recipe = opened.rows("metrics"), opened.recipe
    assert [row["step"] for row in rows] == list(range(1, recipe.slow.steps + 1))
    for row in rows:
        assert recipe.slow.group % row["contexts"] == 0
        assert len(row["rewards"]) == row["contexts"]
        assert row["reward"] == pytest.approx(sum(row["rewards"].values()) / row["contexts"])
        assert {"loss", "grad_norm", "entropy", "kl", "zero_variance", "response_length"} <= row.keys()
        assert {"update", "sampling", "grading"} <= row["phases"].keys()
    ledger = opened.read_json("ledger.json")
    assert ledger is not None
    assert ledger["slow"]["rollouts"] == recipe.slow.steps * recipe.slow.problems * recipe.slow.group
    spent = [sum(entry["rollouts"] for entry in data["spent"].values()) for data in opened.cycles()]
    assert sum(spent) == rows[-1]["rollouts_fast"]
    for data in opened.cycles():
        assert data["spent"]["rescore"]["rollouts"] == len(data["carried"]) * len(data["anchors"])
        assert {member["scored_at"] for member in data["population"]} == {data["policy_step"]}
    tried = opened.rows("evals")
    problems, k = recipe.evaluation.problems, recipe.evaluation.k
    assert ledger["evaluation"]["rollouts"] == sum(len(row["results"]) for row in tried) * problems * k


def test_contexts_keep_to_their_token_budget(by_words: list[str], tiny_folder: Path, tmp_path: Path) -> None:
    short = ["fast.max_tokens=12", "slow.steps=2", "evaluation.every=0"]
    opened = RunFolder.open(run(tmp_path / "run", *by_words, *short))
    _, tokenizer = load_pretrained(str(tiny_folder))
    texts = [text for data in opened.cycles() for record in data["contexts"] for text in record["texts"].values()]
    assert len(texts) > 3
    assert 7 < max(len(tokenizer(text)["input_ids"]) for text in texts) <= 12


def test_rl_only_is_the_same_loop_without_evolving(by_words: list[str], tmp_path: Path) -> None:
    opened = RunFolder.open(run(tmp_path / "run", "method=rl", *BRIEF, *by_words))
    assert opened.cycles() == []
    assert all(list(row["results"]) == ["seed"] for row in opened.rows("evals"))
    assert opened.rows("metrics")[-1]["rollouts_fast"] == 0
    assert opened.rows("metrics")[-1]["contexts"] == 1


def test_the_slow_loop_alone_raises_reward_under_a_fixed_text(tiny_folder: Path, tmp_path: Path) -> None:
    """A random model learns to begin with one of its words, which it said once in twenty times."""
    (tmp_path / "first.py").write_text("def grade(answer, row):\n    return float(answer.split()[:1] == ['red'])\n")
    task = [f"task.grader={tmp_path / 'first.py'}:grade", f"model={tiny_folder}", "model.device=cpu"]
    slow = ["method=rl", "slow.steps=20", "slow.problems=8", "slow.group=8", "slow.microbatch=64"]
    slow += ["slow.learning_rate=1e-2", "slow.warmup_steps=0", "sampling.max_tokens=2"]
    opened = RunFolder.open(run(tmp_path / "run", *task, *slow, "evaluation.every=20", "evaluation.k=4"))
    rewards = [row["reward"] for row in opened.rows("metrics")]
    first, last = (row["results"]["seed"]["mean"] for row in opened.rows("evals"))
    assert rewards[0] < 0.2
    assert min(rewards[-3:]) > 0.6
    assert first < 0.2
    assert last > 0.6
    assert opened.rows("metrics")[-1]["rollouts_fast"] == 0


def test_gepa_only_is_the_same_loop_without_updates(tmp_path: Path) -> None:
    path = run(tmp_path / "run", "method=gepa", EVALUATED, "slow.steps=2")
    opened = RunFolder.open(path)
    ledger = opened.read_json("ledger.json")
    assert ledger is not None
    assert ledger["slow"]["rollouts"] == 0
    assert len(opened.cycles()) == 1
    last = opened.rows("evals")[-1]["results"]
    assert last["best context"]["mean"] > last["seed"]["mean"] + 0.25
    assert not list(path.glob("checkpoints/*/*.safetensors"))


def test_evaluating_the_last_checkpoint_gives_the_number_seen_in_training(finished: Path) -> None:
    opened = RunFolder.open(finished)
    again = evaluate_run(finished, k=opened.recipe.evaluation.k)
    recorded = opened.rows("evals")[-1]["results"]
    assert {label: score.to_dict() for label, score in again.items()} == recorded
    # The best step, 3, has one as well unless saving takes longer than a second.
    with pytest.raises(RunError, match=r"no checkpoint of step 5 .* there are 2, (3, )?4, 6"):
        evaluate_run(finished, step=5)


def test_a_run_killed_and_resumed_ends_as_if_never_interrupted(
    by_words: list[str], resumable: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    given = ["train", EXAMPLE, EVALUATED, *by_words, f"output.folder={folder}"]
    process = fork(type_in, given, environment={}, output=os.devnull)
    steps = random.Random(2).randrange(1, 6)
    metrics = folder / "metrics.jsonl"
    while process.is_alive() and (not metrics.exists() or metrics.read_text().count("\n") < steps):
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert json.loads((folder / "run.json").read_text())["status"] == "running"
    start.resume(folder)
    assert outcome(folder) == outcome(resumable)
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"


def test_a_finished_run_resumes_to_itself(resumable: Path) -> None:
    before = outcome(resumable)
    start.resume(resumable)
    assert outcome(resumable) == before


def without_evaluations(run: Path) -> dict[str, object]:
    """The outcome of a run but for its evaluations: one that was extended has one more, where it ended at first."""
    found = outcome(run)
    for row in found["metrics"]:
        row.pop("rollouts_evaluation")
    for row in found["ledger rows"]:
        row["spent"].pop("evaluation", None)
    found["ledger"].pop("evaluation")
    found["rollouts"] = [name for name in found["rollouts"] if not name.startswith("evaluation-")]
    return {name: part for name, part in found.items() if name != "evals"}


def test_a_finished_run_that_is_extended_ends_as_if_it_had_been_longer(
    by_words: list[str], resumable: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ended within a cycle, and within the warm-up of the learning rate."""
    folder = run(tmp_path / "run", EVALUATED, *by_words, "slow.steps=3")
    rates = [row["learning_rate"] for row in RunFolder.open(resumable).rows("metrics")]
    start.resume(folder, overrides=["slow.steps=6"])
    opened = RunFolder.open(folder)
    assert [row["step"] for row in opened.rows("evals")] == [0, 3, 6]
    assert [row["learning_rate"] for row in opened.rows("metrics")] == rates
    assert opened.recipe.slow.steps == 6
    assert without_evaluations(folder) == without_evaluations(resumable)
    capsys.readouterr()
    start.resume(folder)
    assert "nothing is left to do: the run has reached slow.steps=6" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(RecipeError) as refused:
        start.resume(folder, overrides=["slow.steps=5"])
    assert str(refused.value).startswith("slow.steps=5 would end the run earlier than slow.steps=6")
    with pytest.raises(RecipeError, match="rollouts=5 would end the run earlier than rollouts=null"):
        start.resume(folder, overrides=["rollouts=5"])


def test_gepa_only_is_extended_by_a_larger_budget(by_words: list[str], tmp_path: Path) -> None:
    settings = (*BRIEF, *by_words, "method=gepa", "slow.steps=1000", "evaluation.every=0")
    whole = run(tmp_path / "whole", *settings, "rollouts=60")
    folder = run(tmp_path / "run", *settings, "rollouts=30")
    assert len(RunFolder.open(folder).cycles()) < len(RunFolder.open(whole).cycles())
    start.resume(folder, overrides=["rollouts=60"])
    assert outcome(folder) == outcome(whole)


def test_a_cycle_finished_before_an_interruption_is_not_paid_for_twice(resumable: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(resumable, folder)
    for step in (4, 6):
        shutil.rmtree(folder / "checkpoints" / f"step-{step:06d}")
    marked = folder / "contexts" / "cycle-0001.json"
    data = json.loads(marked.read_text())
    data["generations"] = 1234  # would be overwritten if the cycle were run again
    marked.write_text(json.dumps(data))
    start.resume(folder, step=2, trust=True)
    assert json.loads(marked.read_text())["generations"] == 1234
    assert outcome(folder)["weights"] == outcome(resumable)["weights"]
    assert outcome(folder)["ledger"] == outcome(resumable)["ledger"]


def test_a_run_in_use_is_not_resumed(resumable: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By this process here; that other processes are kept out too is tested in tests/runs."""
    with RunFolder.open(resumable, lock=True), pytest.raises(SystemExit) as stopped:
        main(["train", "--resume", str(resumable)])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert f"in use by process {os.getpid()};" in said
    assert "Traceback" not in said


def test_a_failed_checkpoint_costs_no_training(
    by_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save = local_engine.save_trainer

    def full_disk(trainer: Trainer, folder: Path) -> None:
        if trainer.version == 1:
            raise OSError(28, "No space left on device")
        save(trainer, folder)

    monkeypatch.setattr(local_engine, "save_trainer", full_disk)
    opened = RunFolder.open(run(tmp_path / "run", *SAVED, *by_words))
    assert opened.checkpoints.steps() == [2]
    assert "checkpoint of step 1 was not saved: No space left on device" in " ".join(capsys.readouterr().out.split())


def test_a_last_checkpoint_that_cannot_be_saved_is_an_error_and_can_be_resumed(
    by_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(trainer: Trainer, folder: Path) -> None:
        if trainer.version == 2:
            raise OSError(28, "No space left on device")
        save(trainer, folder)

    save = local_engine.save_trainer
    monkeypatch.setattr(local_engine, "save_trainer", full_disk)
    with pytest.raises(RunError, match="No space left on device"):
        run(tmp_path / "run", *SAVED, *by_words)
    assert RunFolder.open(tmp_path / "run").checkpoints.steps() == [1]
    monkeypatch.setattr(local_engine, "save_trainer", save)
    start.resume(tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").checkpoints.steps() == [1, 2]


def test_a_learning_rate_that_breaks_the_weights_ends_the_run_and_saves_nothing(
    by_words: list[str], tmp_path: Path
) -> None:
    # No recipe file may say so; weights can break at smaller rates too, later.
    recipe = changed(load_recipe(EXAMPLE, [*SAVED, *by_words]), slow={"learning_rate": 1e308})
    with pytest.raises(RunError, match=r"diverged at step 1: the largest weight is nan; .* lower slow.learning_rate"):
        start.train(recipe, tmp_path / "run")
    opened = RunFolder.open(tmp_path / "run")
    assert opened.read_json("run.json")["status"] == "failed"  # type: ignore[index]
    assert opened.checkpoints.steps() == []


def test_a_reflection_model_that_is_down_does_not_stop_training(by_words: list[str], tmp_path: Path) -> None:
    opened = RunFolder.open(
        run(
            tmp_path / "run",
            *(*BRIEF, *by_words),
            "fast.reflection={kind: litellm, model: openai/none, base_url: 'http://127.0.0.1:9/v1', retries: 0}",
        )
    )
    (data,) = opened.cycles()
    assert data["faults"]["reflection_failed"] >= 1
    assert data["spent"]["reflection"]["faults"]["failures"] >= 1
    assert len(data["population"]) == 1
    assert len(opened.rows("metrics")) == 2


def test_a_run_reflects_through_litellm_on_a_real_server_with_a_real_model(tiny_folder: Path, tmp_path: Path) -> None:
    """The server answers with nano, which was not made to reflect: poor edits, but really written."""
    model, tokenizer = load_to_ask("nano", "cpu")
    with OpenAIServer(model, tokenizer) as server:
        reflection = f"{{kind: litellm, model: nano, base_url: '{server.base_url}', max_tokens: 24}}"
        opened = RunFolder.open(
            run(tmp_path / "run", *ONE_EDIT, f"model={tiny_folder}", f"fast.reflection={reflection}")
        )
    (data,) = opened.cycles()
    spent = data["spent"]["reflection"]
    assert spent["calls"] == len(server.requests) - 1 >= 1  # the first is asked before step 1
    assert spent["completion_tokens"] >= 1
    shown = json.dumps(server.requests[1]["messages"])
    assert any(f"{word} means : " in shown for word in ("zorka", "blimo", "kedlin", "fonrax"))
    written = {record["texts"]["system"] for record in data["contexts"]} - {"Answer the question."}
    assert len(written) == len(data["edits"])
    assert written or data["faults"]["reflection_failed"] >= 1
    assert len(opened.rows("metrics")) == 1


def test_a_run_ends_when_its_rollouts_are_spent(by_words: list[str], tmp_path: Path) -> None:
    opened = RunFolder.open(run(tmp_path / "run", *BRIEF, *by_words, "slow.steps=100", "rollouts=100"))
    rows = opened.rows("metrics")
    spent = [row["rollouts_slow"] + row["rollouts_fast"] for row in rows]
    assert spent[-1] >= 100 > spent[-2]
    assert opened.checkpoints.steps()[-1] == rows[-1]["step"]
    assert opened.rows("evals")[-1]["step"] == rows[-1]["step"]
    before = outcome(opened.path)
    start.resume(opened.path)
    assert outcome(opened.path) == before


def test_the_summary_says_why_rollouts_are_not_exactly_the_budget() -> None:
    recipe = load_recipe(EXAMPLE)
    steps = recipe.slow.steps

    def said(allowed: int | None, rollouts: int, step: int) -> str:
        return finishing.of_budget(recipe.model_copy(update={"rollouts": allowed}), rollouts, step)

    assert said(None, 128, steps) == said(128, 128, 1) == said(60, 36, steps - 1) == ""
    assert said(100, 128, 1) == "128 of 100 training rollouts: a step or cycle that has begun is finished"
    assert said(60, 36, steps) == f"36 of 60 training rollouts: slow.steps={steps} ended the run"


def test_gepa_only_ends_when_its_rollouts_are_spent(by_words: list[str], tmp_path: Path) -> None:
    opened = RunFolder.open(run(tmp_path / "run", *BRIEF, *by_words, "method=gepa", "rollouts=100", "slow.steps=1000"))
    last = opened.rows("evals")[-1]
    assert 100 <= last["rollouts_fast"] < 200


def test_the_policy_can_reflect_on_itself(tmp_path: Path) -> None:
    reflection = "fast.reflection={kind: policy, max_tokens: 24}"
    opened = RunFolder.open(run(tmp_path / "run", *ONE_EDIT, reflection))
    (data,) = opened.cycles()
    # nano was not made to reflect: whatever it says is a fair proposal or a counted failure.
    assert data["spent"]["reflection"]["calls"] >= 1
    assert len(opened.rows("metrics")) == 1


def test_a_local_model_can_reflect(tiny_folder: Path, tmp_path: Path) -> None:
    reflection = "fast.reflection={kind: local, model: nano, max_tokens: 24}"
    opened = RunFolder.open(run(tmp_path / "run", *ONE_EDIT, f"model={tiny_folder}", reflection))
    (data,) = opened.cycles()
    assert data["spent"]["reflection"]["calls"] >= 1
    assert data["spent"]["reflection"]["prompt_tokens"] > 100


def test_a_step_without_signal_says_so(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "equal.py").write_text("def grade(answer, row):\n    return 0.5\n")
    grader = f"task.grader={tmp_path / 'equal.py'}:grade"
    settings = [*BRIEF, "slow.steps=1", "method=rl", f"model={tiny_folder}", grader]
    (row,) = RunFolder.open(run(tmp_path / "run", *settings)).rows("metrics")
    assert row["zero_variance"] == 1
    assert row["trained_rows"] == 0
    assert row["entropy"] is None
    assert row["kl"] is None


def test_a_broken_grader_is_counted_and_survived(tiny_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "def grade(answer, row):\n"
        "    if row['question'].startswith('zorka'):\n        raise RuntimeError('no luck')\n"
        "    if row['question'].startswith('blimo'):\n        return float('nan')\n"
        "    return 0.5\n"
    )
    grader = f"task.grader={tmp_path / 'broken.py'}:grade"
    recipe = [*BRIEF, "method=rl", f"model={tiny_folder}", grader, "grading.faulty=0"]
    with pytest.raises(GradingError, match=r"correct the grader, or raise grading\.faulty"):
        run(tmp_path / "run", *recipe)
    opened = RunFolder.open(start.resume(tmp_path / "run", overrides=["grading.faulty=1"]))
    ledger = opened.read_json("ledger.json")
    assert ledger is not None
    assert ledger["slow"]["faults"]["grader"] >= 8
    assert len(opened.rows("metrics")) == 2
    assert sum(row["faulty_grades"] for row in opened.rows("metrics")) == ledger["slow"]["faults"]["grader"]


def test_trackers_get_the_numbers(by_words: list[str], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = run(tmp_path / "run", *BRIEF, *by_words, "output.report_to=[tensorboard]")
    event_files = [EventAccumulator(str(file)).Reload() for file in path.rglob("events.out.tfevents*")]
    (events,) = [file for file in event_files if "train/fastslow/reward" in file.Tags()["scalars"]]
    opened = RunFolder.open(path)
    logged = [event.value for event in events.Scalars("train/fastslow/reward")]
    assert logged == pytest.approx([row["reward"] for row in opened.rows("metrics")])
    losses = [event.value for event in events.Scalars("train/loss")]
    assert losses == pytest.approx([row["loss"] for row in opened.rows("metrics")])
    last = opened.rows("evals")[-1]["results"]
    for label, result in last.items():
        assert events.Scalars(f"train/evaluation/{label}")[-1].value == pytest.approx(result["mean"])


def test_lora_trains_resumes_and_keeps_the_base(by_words: list[str], tmp_path: Path) -> None:
    path = run(tmp_path / "run", *SAVED, *by_words, "model.lora={rank: 4, alpha: 8}")
    checkpoint = path / "checkpoints" / "step-000002"
    assert (checkpoint / "adapter_model.safetensors").exists()
    assert not (checkpoint / "model.safetensors").exists()
    assert RunFolder.open(path).rows("metrics")[0]["kl"] == pytest.approx(0, abs=1e-6)
    expected = outcome(path)
    shutil.rmtree(checkpoint)
    with pytest.raises(RunError, match=r"step 2, which is missing; .* --step \(1\)"):
        start.resume(path)
    start.resume(path, step=1)
    assert outcome(path) == expected
