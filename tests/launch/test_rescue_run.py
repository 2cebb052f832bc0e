"""Rescue on a real engine: second tries of the policy, a local teacher, a served one, and resuming."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import outcome
from openai_server import Fault, OpenAIServer
from rich.console import Console

from fastslow.base.errors import ModelError, RecipeError
from fastslow.launch import start
from fastslow.launch.estimate import check
from fastslow.models.load import load_to_ask
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Example, Feedback
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import PlainView
from fastslow.tasks.base import Message, Options, QuestionTask, Split


class Yes(QuestionTask):
    """Right is `yes`, or with `chance` one in so many answers, whatever they say."""

    seed_text = "Answer."

    def __init__(self, chance: int = 0) -> None:
        super().__init__(Options())
        self.chance = chance

    def examples(self, split: Split) -> list[Example]:
        return [Example(f"{split}-{number}", {}) for number in range(40)]

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": f"The question {example.id}?"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        lucky = self.chance and zlib.crc32(answer.encode()) % self.chance == 0
        right = answer.strip() == "yes" or bool(lucky)
        return Feedback(float(right), "" if right else f"the answer to {example.id} is yes")


def recipe(rescue: Any, **slow: Any) -> Recipe:
    return build_recipe(
        {
            "method": "rl",
            "model": {"name": "nano", "device": "cpu"},
            "task": "given",
            "slow": {"steps": 2, "problems": 2, "group": 2, "learning_rate": 1e-4, "rescue": rescue, **slow},
            "sampling": {"max_tokens": 8},
            "evaluation": {"every": 0},
            "output": {"checkpoint_every": 1},
        }
    )


def trained(recipe: Recipe, folder: Path, task: Yes) -> tuple[RunFolder, str]:
    said = io.StringIO()
    start.train(recipe, folder, PlainView(Console(file=said, width=200)), task=task)
    return RunFolder.open(folder), said.getvalue()


@pytest.fixture(scope="module")
def nano() -> tuple[Any, Any]:
    return load_to_ask("nano", "cpu")


@pytest.fixture
def server(nano: tuple[Any, Any]) -> Iterator[OpenAIServer]:
    with OpenAIServer(*nano) as serving:
        yield serving


def test_a_served_teacher_rescues_and_a_resumed_run_is_the_same(server: OpenAIServer, tmp_path: Path) -> None:
    model = {"kind": "litellm", "model": "some/model", "base_url": server.base_url, "retries": 0}
    server.faults.extend([Fault(text="yes")] * 100)
    run, said = trained(recipe({"name": "teachers", "models": [model]}), tmp_path / "run", Yes())
    rows = run.rows("metrics")
    assert len(server.requests) == 1 + 4  # one before step 1
    assert [row["rescue"]["failed"] for row in rows] == [2, 2]
    joined = [row["rescue"]["rescued"] for row in rows]
    assert [row["trained_rows"] for row in rows] == [3 * count for count in joined]
    assert sum(joined) + sum(row["rescue"]["held"] for row in rows) == 4
    assert sum(joined) > 0
    assert all(row["sampler_mismatch"] < 0.01 for row in rows if row["trained_rows"])
    spent = run.read_json("ledger.json")["rescue"]
    assert (spent["rollouts"], spent["calls"]) == (4, 4)
    assert spent["completion_tokens"] > 0
    assert "rescue by some/model" in said
    before = outcome(tmp_path / "run")
    start.resume(tmp_path / "run", PlainView(Console(file=io.StringIO())), task=Yes(), step=1)
    assert outcome(tmp_path / "run") == before


def test_second_tries_and_a_local_teacher(tmp_path: Path) -> None:
    """One answer in three is right whatever it says, so both help now and then."""
    rescue = {"name": "teachers", "models": ["nano"], "retry": True, "attempts": 2}
    run, _ = trained(recipe(rescue, steps=4), tmp_path / "run", Yes(chance=3))
    rows = run.rows("metrics")
    helpers = rows[-1]["rescue"]["helpers"]
    assert list(helpers) == ["retry", "nano"]
    assert helpers["retry"]["solved"] > 0
    assert helpers["nano"]["tried"] == helpers["retry"]["tried"] - helpers["retry"]["solved"]
    assert all(row["sampler_mismatch"] < 0.01 for row in rows if row["trained_rows"])  # help is no mismatch
    before = outcome(tmp_path / "run")
    start.resume(tmp_path / "run", PlainView(Console(file=io.StringIO())), task=Yes(chance=3), step=2)
    assert outcome(tmp_path / "run") == before


def test_where_nothing_is_rescued_the_weights_are_the_same_to_the_bit(server: OpenAIServer, tmp_path: Path) -> None:
    wrong = next(text for text in ("no", "never", "nope") if zlib.crc32(text.encode()) % 2)
    server.faults.extend([Fault(text=wrong)] * 100)
    model = {"kind": "litellm", "model": "some/model", "base_url": server.base_url}
    trained(recipe("none", problems=4), tmp_path / "plain", Yes(chance=2))
    run, _ = trained(recipe({"name": "teachers", "models": [model]}, problems=4), tmp_path / "never", Yes(chance=2))
    plain, never = outcome(tmp_path / "plain"), outcome(tmp_path / "never")
    assert run.rows("metrics")[-1]["rescue"]["helpers"]["some/model"]["tried"] > 0
    assert never["ledger"]["rescue"]["rollouts"] > 0 < never["metrics"][-1]["trained_rows"]
    assert plain["weights"] == never["weights"]


def test_a_model_that_cannot_be_asked_is_found_before_step_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    bad = recipe({"name": "teachers", "models": ["openai/gpt-5.2"]})
    with pytest.raises((ModelError, RecipeError), match="OPENAI_API_KEY"):
        trained(bad, tmp_path / "run", Yes())
    assert not (tmp_path / "run").exists()
    missing = [each.found for each in check(bad) if each.missing]
    assert any("OPENAI_API_KEY" in each for each in missing)
