"""Runs that save rollouts, on the engine of pure Python: what is booked, what is trained on, and that an interruption changes
nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import outcome, recipe_of, resume, run
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.fast.reflection import LanguageModelReflector
from fastslow.fast.reflection.chats import PolicyChat
from fastslow.models.chat import ChatFormat
from fastslow.recipe import Recipe
from fastslow.records import Sampling
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import PURPOSES, Ledger, sum_rows, sums_by

SETTINGS: dict[str, dict[str, Any]] = {
    "reuse": {"reuse": True},
    "free scores": {"rescore": "from-rollouts", "adaptive": True},
    "all": {"rescore": "from-rollouts", "adaptive": True, "reuse": True},
}


def small(output: dict[str, Any] | None = None, **fast: Any) -> Recipe:
    """Two cycles of three steps, with a checkpoint after each step."""
    return recipe_of(
        slow={"steps": 6, "problems": 4},
        fast={"cycle": 3, "anchors": 6, "budget": 40, "optimizer": {"proposals": 2}, **fast},
        evaluation={"every": 3},
        output={"checkpoint_every": 1, **(output or {})},
    )


def folder_of(recipe: Recipe, folder: Path) -> RunFolder:
    run(folder, recipe)
    return RunFolder.open(folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every setting, left alone."""
    folder = tmp_path_factory.mktemp("alone")
    return {name: folder_of(small(**fast), folder / name).path for name, fast in SETTINGS.items()}


# The ledger ------------------------------------------------------------------------------------------------------------


class Counting(FakeEngine):
    """Counts what reaches the engine, whoever asks."""

    calls = prompt_tokens = completion_tokens = 0

    async def sample(self, prompts: Any, *others: Any, **named: Any) -> Any:
        completions = await super().sample(prompts, *others, **named)
        self.calls += len(prompts)
        self.prompt_tokens += sum(map(len, prompts))
        self.completion_tokens += sum(len(completion.ids) for completion in completions)
        return completions


schedules = st.fixed_dictionaries(
    {
        "cycle": st.integers(1, 3),
        "anchors": st.integers(1, 8),
        "budget": st.integers(0, 40),
        "samples": st.integers(1, 2),
        "population": st.sampled_from([1, 2, 4]),
        "optimizer": st.fixed_dictionaries({"proposals": st.integers(1, 3)}),
        "rescore": st.sampled_from(["all", "from-rollouts"]),
        "reuse": st.booleans(),
        "adaptive": st.booleans(),
    }
)
methods = st.sampled_from(["fst", "fst", "fst", "gepa", "rl"])


@settings(max_examples=20, deadline=None)
@given(methods, st.integers(1, 5), schedules, st.booleans(), st.integers(0, 2), st.integers(0, 9))
def test_every_call_of_the_model_is_booked_once(
    tmp_path_factory: pytest.TempPathFactory,
    method: str,
    steps: int,
    fast: dict[str, Any],
    itself: bool,
    every: int,
    seed: int,
) -> None:
    engine = Counting()
    chat = PolicyChat(engine, ChatFormat(engine.tokenizer), Sampling(1.0, 1.0, 8))  # type: ignore[arg-type]
    recipe = recipe_of(method, slow={"steps": steps, "problems": 4}, fast=fast, evaluation={"every": every}, seed=seed)
    folder = tmp_path_factory.mktemp("run") / "run"
    run(folder, recipe, engine, LanguageModelReflector(chat) if itself else None)
    opened = RunFolder.open(folder)
    ledger = Ledger.from_dict(opened.read_json("ledger.json") or {})
    total = ledger.total()
    assert total.calls == engine.calls
    assert total.prompt_tokens == engine.prompt_tokens
    assert total.completion_tokens == engine.completion_tokens
    # One question a problem here, so every call that is no reflection is a rollout.
    assert total.rollouts == engine.calls - ledger["reflection"].calls
    assert ledger["slow"].rollouts + ledger["slow"].reused == (steps * 16 if method != "gepa" else 0)
    # Rows by step add up to cycles and to the whole, purpose by purpose.
    rows = opened.rows("ledger")
    cycles = sums_by(rows, "cycle").values()
    for purpose in PURPOSES:
        for name in ("rollouts", "reused", "calls", "prompt_tokens", "completion_tokens"):
            whole = getattr(ledger[purpose], name)
            assert getattr(sum_rows(rows)[purpose], name) == whole
            assert sum(getattr(cycle[purpose], name) for cycle in cycles) == whole


# Reuse -----------------------------------------------------------------------------------------------------------------


def claimed_by_step(opened: RunFolder) -> list[int]:
    rows = opened.rows("ledger")
    return [sums_by(rows, "step")[step]["slow"].reused for step in range(1, opened.recipe.slow.steps + 1)]


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


def test_without_switches_nothing_is_left_behind(tmp_path: Path) -> None:
    opened = folder_of(small(), tmp_path / "run")
    assert opened.rows("metrics")[-1]["rollouts_reused"] == 0
    assert all(row["reward_played"] == row["reward"] for row in opened.rows("metrics"))
    assert not list(opened.path.rglob("*.json.gz"))


def test_from_rollouts_a_run_plays_no_carried_context_twice(tmp_path: Path) -> None:
    opened = folder_of(small({"save_rollouts": True}, rescore="from-rollouts"), tmp_path / "run")
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
    resume(folder, RunFolder.open(folder).recipe)
    assert outcome(folder) == outcome(alone[name])


def test_a_cycle_without_its_rollouts_is_run_again(alone: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(alone["reuse"], folder)
    for later in (4, 5, 6):
        shutil.rmtree(folder / "checkpoints" / f"step-{later:06d}")
    (folder / "rollouts" / "cycle-0001.json.gz").unlink()
    resume(folder, RunFolder.open(folder).recipe)
    assert outcome(folder) == outcome(alone["reuse"])


def test_rollouts_of_cycles_that_no_checkpoint_needs_are_removed(tmp_path: Path) -> None:
    opened = folder_of(small({"keep_checkpoints": 2}, reuse=True, cycle=1), tmp_path / "run")
    assert opened.checkpoints.steps() == [3, 5, 6]  # the third is the best
    names = [f"cycle-{cycle:04d}.json.gz" for cycle in (3, 4, 5)]  # from the oldest checkpoint on
    assert sorted(path.name for path in (opened.path / "rollouts").glob("cycle-*")) == names
