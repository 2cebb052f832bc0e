"""Whole runs that save rollouts: what is booked, what is trained on, and that an interruption changes nothing."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import EXAMPLE, last_checkpoint, outcome, together
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from fastslow import start
from fastslow.engine.local.sampler import PolicySampler
from fastslow.errors import RecipeError
from fastslow.fast.reflection import Lessons, Request
from fastslow.recipe import load_recipe
from fastslow.records import Completion, Sampling
from fastslow.runs.export import export_run
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import PURPOSES, Ledger
from fastslow.runs.spending import group_sum, sum_rows

SMALL = [
    "slow.steps=6", "slow.learning_rate=1e-2", "slow.warmup_steps=0", "slow.group=4", "slow.problems=4",
    "fast.cycle=3", "fast.anchors=6", "fast.budget=40", "fast.minibatch=2", "fast.proposals=2", "fast.population=2",
    "evaluation.problems=4", "evaluation.every=3", "output.checkpoint_every=1", "sampling.max_tokens=6",
]  # fmt: skip
SETTINGS = {
    "reuse": ["fast.reuse=true"],
    "free scores": ["fast.rescore=from-rollouts", "fast.race=true", "fast.adaptive=true"],
    "all": ["fast.rescore=from-rollouts", "fast.race=true", "fast.adaptive=true", "fast.overlap=true",
            "fast.reuse=true", "fast.reuse_age=1"],
    "overlap": ["fast.overlap=true"],
}  # fmt: skip


@pytest.fixture(scope="session")
def by_words(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> list[str]:
    """A tiny model, and a grader by different words: answers of a group differ, none is perfect, and there are many edits."""
    file = tmp_path_factory.mktemp("grader") / "length.py"
    file.write_text(
        "def grade(answer, row):\n"
        "    words = answer.split()\n"
        "    return len(set(words)) / 8, f'say {len(words)} more words\\nuse the word {(words or [0])[0]}'\n"
    )
    return [f"task.grader={file}:grade", f"model={tiny_folder}", "model.device=cpu"]


def run(folder: Path, *overrides: str) -> RunFolder:
    return RunFolder.open(start.train(load_recipe(EXAMPLE, overrides), folder))


@pytest.fixture(scope="module")
def alone(by_words: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every setting, left alone."""
    folder = tmp_path_factory.mktemp("alone")
    return {name: run(folder / name, *SMALL, *by_words, *more).path for name, more in SETTINGS.items()}


# The ledger ------------------------------------------------------------------------------------------------------------


class Counted:
    """Counts what reaches the sampler, whoever asks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.prompt_tokens = self.completion_tokens = 0
        sample = PolicySampler.sample

        def counting(
            sampler: PolicySampler, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, ready: Any = None
        ) -> list[Completion]:
            completions = sample(sampler, prompts, sampling, seed, ready)
            self.calls += len(prompts)
            self.prompt_tokens += sum(map(len, prompts))
            self.completion_tokens += sum(len(completion.ids) for completion in completions)
            return completions

        monkeypatch.setattr(PolicySampler, "sample", counting)


flag = st.booleans().map(lambda value: str(value).lower())
schedules = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["fst", "fst", "fst", "gepa", "rl"]),
        "slow.steps": st.integers(1, 5),
        "fast.cycle": st.integers(1, 3),
        "fast.anchors": st.integers(1, 8),
        "fast.budget": st.integers(0, 40),
        "fast.samples": st.integers(1, 2),
        "fast.population": st.sampled_from([1, 2, 4]),
        "fast.proposals": st.integers(1, 3),
        "fast.rescore": st.sampled_from(["all", "from-rollouts"]),
        "fast.reuse": flag,
        "fast.race": flag,
        "fast.adaptive": flag,
        "fast.reflection": st.sampled_from(["lessons", "{kind: policy, max_tokens: 8}"]),
        "evaluation.every": st.integers(0, 2),
        "seed": st.integers(0, 9),
    }
)


@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.generate],  # a run takes seconds: no time to look for a simpler schedule that fails
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(schedules)
def test_every_call_of_the_model_is_booked_once(
    by_words: list[str], tmp_path_factory: pytest.TempPathFactory, schedule: dict[str, Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        counted = Counted(patch)
        opened = run(
            tmp_path_factory.mktemp("run") / "run", *SMALL, *by_words, *(f"{k}={v}" for k, v in schedule.items())
        )
    ledger = Ledger.from_dict(opened.read_json("ledger.json") or {})
    total = ledger.total()
    assert total.calls == counted.calls
    assert total.prompt_tokens == counted.prompt_tokens
    assert total.completion_tokens == counted.completion_tokens
    # One question a problem here, so every call that is no reflection is a rollout.
    assert total.rollouts == counted.calls - ledger["reflection"].calls
    steps = schedule["slow.steps"] if schedule["method"] != "gepa" else 0
    assert ledger["slow"].rollouts + ledger["slow"].reused == steps * 16
    # Rows by step add up to cycles and to the whole, purpose by purpose.
    rows = opened.rows("ledger")
    cycles = [group_sum(rows, "cycle", cycle) for cycle in {row["cycle"] for row in rows}]
    for purpose in PURPOSES:
        for name in ("rollouts", "reused", "calls", "prompt_tokens", "completion_tokens"):
            whole = getattr(ledger[purpose], name)
            assert getattr(sum_rows(rows)[purpose], name) == whole
            assert sum(getattr(cycle[purpose], name) for cycle in cycles) == whole


# Reuse -----------------------------------------------------------------------------------------------------------------


def claimed_by_step(opened: RunFolder) -> list[int]:
    rows = opened.rows("ledger")
    return [group_sum(rows, "step", step)["slow"].reused for step in range(1, opened.recipe.slow.steps + 1)]


def test_scoring_rollouts_are_trained_on_first_where_they_are_freshest(alone: dict[str, Path]) -> None:
    opened = RunFolder.open(alone["reuse"])
    claimed = claimed_by_step(opened)
    ledger = opened.read_json("ledger.json") or {}
    assert 0 < sum(claimed) == ledger["slow"]["reused"]
    assert ledger["slow"]["rollouts"] == 6 * 16 - sum(claimed)
    # Six anchors of twelve problems ahead: all of the first step's, half of the second's, none of the third's.
    for first, second, third in (claimed[:3], claimed[3:]):
        assert first == 2 * second > 0
        assert third == 0
    for row, count in zip(opened.rows("metrics"), claimed, strict=True):
        assert (row["reward_played"] is None) == (count == 16)
    assert opened.rows("metrics")[-1]["rollouts_reused"] == sum(claimed)


def test_an_age_limit_lets_old_rollouts_go(by_words: list[str], tmp_path: Path) -> None:
    claimed = claimed_by_step(run(tmp_path / "run", *SMALL, *by_words, "fast.reuse=true", "fast.reuse_age=0"))
    assert claimed[0] > 0
    assert claimed[3] > 0
    assert sum(claimed) == claimed[0] + claimed[3]


def test_without_switches_nothing_is_left_behind(by_words: list[str], tmp_path: Path) -> None:
    opened = run(tmp_path / "run", *SMALL, *by_words, "slow.steps=4")
    assert opened.rows("metrics")[-1]["rollouts_reused"] == 0
    assert all(row["reward_played"] == row["reward"] for row in opened.rows("metrics"))
    assert not list(opened.path.rglob("*.json.gz"))


def test_from_rollouts_a_run_plays_no_carried_context_twice(by_words: list[str], tmp_path: Path) -> None:
    opened = run(tmp_path / "run", *SMALL, *by_words, "fast.rescore=from-rollouts")
    first, second = opened.cycles()
    assert first["spent"]["rescore"]["rollouts"] == 6
    assert second["spent"]["rescore"]["rollouts"] == 0
    assert second["spent"]["rescore"]["reused"] > 0
    trained = {rollout for step in (1, 2, 3) for rollout in _examples(opened, step)}
    assert set(second["anchors"]) <= trained


def _examples(opened: RunFolder, step: int) -> list[str]:
    import pyarrow.parquet as pq

    return pq.read_table(opened.path / "rollouts" / f"step-{step:06d}.parquet").column("example").to_pylist()


# Interruptions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "step", "journal"),
    [
        *(("all", *where) for where in [(1, True), (3, True), (3, False), (4, True)]),
        ("reuse", 1, True),
        ("reuse", 4, True),
        ("free scores", 3, False),
        ("overlap", 4, True),
    ],
)
def test_an_interrupted_run_ends_as_if_left_alone(
    name: str, step: int, journal: bool, alone: dict[str, Path], tmp_path: Path
) -> None:
    """From a checkpoint inside a cycle, and between two with the next one in the run folder or not."""
    folder = tmp_path / "copy"
    shutil.copytree(alone[name], folder)
    for later in range(step + 1, 7):
        shutil.rmtree(folder / "checkpoints" / f"step-{later:06d}")
    if not journal:
        (folder / "contexts" / "cycle-0001.json").unlink()
    start.resume(folder, step=step, trust=True)
    assert outcome(folder) == outcome(alone[name])


def test_a_cycle_without_its_rollouts_is_run_again(alone: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(alone["reuse"], folder)
    for later in (4, 5, 6):
        shutil.rmtree(folder / "checkpoints" / f"step-{later:06d}")
    (folder / "rollouts" / "cycle-0001.json.gz").unlink()
    start.resume(folder, step=3, trust=True)
    assert outcome(folder) == outcome(alone["reuse"])


def test_rollouts_of_cycles_that_no_checkpoint_needs_are_removed(by_words: list[str], tmp_path: Path) -> None:
    opened = run(tmp_path / "run", *SMALL, *by_words, "fast.reuse=true", "fast.cycle=1", "output.keep_checkpoints=2")
    assert opened.checkpoints.steps() == [5, 6]
    assert sorted(path.name for path in (opened.path / "rollouts").glob("cycle-*")) == ["cycle-0005.json.gz"]


def test_two_processes_train_one_run_reuse_rollouts_resume_it_export_it_and_refuse_another(
    by_words: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    recipe = [*SMALL, *by_words, *SETTINGS["all"], "slow.steps=5", "slow.microbatch=8", f"output.folder={folder}"]
    first = together("train", EXAMPLE, *recipe)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("finished:") == 1  # one of them speaks
    expected = outcome(folder)
    assert expected["ledger"]["slow"]["reused"] > 0
    shutil.rmtree(folder / "checkpoints" / "step-000005")
    again = together("train", "--resume", folder, "--step", "4")
    assert again.returncode == 0, again.stderr
    assert outcome(folder) == expected
    refused = together("train", EXAMPLE, *recipe)
    assert refused.returncode != 0
    assert "already holds a run" in refused.stderr
    export_run(folder, tmp_path / "model")
    exported, trained = (
        load_file(path / "model.safetensors") for path in (tmp_path / "model", last_checkpoint(folder))
    )
    assert all(torch.equal(exported[name], trained[name]) for name in exported)


# Overlap ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["true", "false"])
def test_edits_are_drafted_in_a_thread_while_the_model_trains(
    overlap: str, by_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Watched(Lessons):
        def __call__(self, request: Request) -> str:
            asked.append(threading.current_thread().name)
            return super().__call__(request)

    monkeypatch.setattr(start, "build_reflector", lambda *_: Watched())
    opened = run(tmp_path / "run", *SMALL, *by_words, f"fast.overlap={overlap}")
    drafting = "drafts: reflection"
    assert (drafting in asked) == (overlap == "true")
    if overlap == "true":
        first = asked.index(drafting)
        assert first > 0  # the first cycle has nothing to draft from
        made = [edit["child"] for edit in opened.cycles()[1]["edits"]]
        waited = [name for name in asked[first:] if name != drafting]
        assert len(made) > len(waited)  # drafts were used


@pytest.mark.parametrize("kind", ["policy", "{kind: local, model: nano}"])
def test_overlap_is_refused_for_reflectors_that_share_the_model_or_its_random_numbers(kind: str) -> None:
    with pytest.raises(RecipeError, match=r"^fast\.overlap asks for edits while the model trains"):
        load_recipe(EXAMPLE, ["fast.overlap=true", f"fast.reflection={kind}"])
