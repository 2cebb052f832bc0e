"""What trackers get, under which names, and what happens when one fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accelerate.tracking
import pytest

from fastslow.base.errors import RecipeError, RunError
from fastslow.recipe import Recipe, build_recipe
from fastslow.runs.trackers import Trackers, check_trackers


class Fake:
    """A tracker as accelerate has them, which fails in the methods named in `fails`."""

    requires_logging_directory = False
    fails: tuple[str, ...] = ()
    made: list[Fake]

    def __init__(self, *given: Any, **options: Any) -> None:
        self.given, self.options = given, options
        self.calls: list[tuple[str, Any]] = []
        self.made.append(self)

    def _call(self, name: str, value: Any = None) -> None:
        self.calls.append((name, value))
        if name in self.fails:
            raise ConnectionError(f"no {name}\ntoday")

    def start(self) -> None:
        self._call("start")

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._call("configuration", values)

    def log(self, values: dict[str, float], step: int) -> None:
        self._call("log", (step, values))

    def finish(self) -> None:
        self._call("finish")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    kind = type("Made", (Fake,), {"made": []})
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(accelerate.tracking.LOGGER_TYPE_TO_CLASS, name, kind)
    return kind


@pytest.fixture
def recipe() -> Recipe:
    seed = {"seed_text": "log in with sk-secret-0123456789"}
    output = {"report_to": ["wandb"]}
    return build_recipe({"model": "nano", "task": "rulebook", "engine": "tinker", "fast": seed, "output": output})


def test_every_tracker_gets_the_recipe_and_the_finite_numbers(
    fakes: type[Fake], recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("SOME_API_KEY", "sk-secret-0123456789")
    trackers = Trackers(["wandb", "mlflow"], tmp_path / "run-1", recipe, pytest.fail)
    trackers.log(3, {"loss": 0.5, "kl": None, "entropy": float("nan"), "evaluation/best@(2)": 1})
    trackers.close()
    trackers.close()
    wandb, mlflow = fakes.made
    assert (wandb.given, wandb.options) == (("mine",), {"name": "run-1"})
    assert (mlflow.given, mlflow.options) == (("Default",), {"run_name": "run-1"})
    settings = wandb.calls[1][1]
    assert "sk-secret" not in str(settings)
    assert (settings["engine.kind"], settings["slow.steps"]) == ("tinker", recipe.slow.steps)
    assert all(isinstance(value, bool | int | float | str) for value in settings.values())
    assert wandb.calls[2:] == [("log", (3, {"train/loss": 0.5, "train/evaluation/best@(2)": 1.0})), ("finish", None)]
    assert mlflow.calls[2:] == [("log", (3, {"loss": 0.5, "evaluation/best__2_": 1.0})), ("finish", None)]


@pytest.mark.parametrize("fails", ["start", "configuration"])
def test_a_tracker_that_cannot_start_is_one_error(
    fakes: type[Fake], recipe: Recipe, tmp_path: Path, fails: str
) -> None:
    fakes.fails = (fails,)
    with pytest.raises(RunError, match=rf"output.report_to=wandb: the tracker did not start: .*no {fails} today; set"):
        Trackers(["wandb"], tmp_path, recipe, pytest.fail)


def test_a_tracker_that_fails_later_warns_once_and_the_others_go_on(
    fakes: type[Fake], recipe: Recipe, tmp_path: Path
) -> None:
    warned: list[str] = []
    trackers = Trackers(["wandb", "mlflow"], tmp_path, recipe, warned.append)
    wandb, mlflow = fakes.made
    wandb.fails = ("log",)
    for step in range(3):
        trackers.log(step, {"loss": 1.0})
    mlflow.fails = ("finish",)
    trackers.close()
    assert [name for name, _ in wandb.calls] == ["start", "configuration", "log"]
    assert [name for name, _ in mlflow.calls] == ["start", "configuration", "log", "log", "log", "finish"]
    assert len(warned) == 2
    assert "the tracker wandb has failed and gets no more numbers: ConnectionError: no log today" in warned[0]
    assert "the tracker mlflow was not closed" in warned[1]


def test_tensorboard_writes_into_the_run_folder(recipe: Recipe, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    check_trackers(["tensorboard"])
    trackers = Trackers(["tensorboard"], tmp_path, recipe, pytest.fail)
    trackers.log(1, {"loss": 0.25})
    trackers.log(2, {"loss": 0.125, "fastslow/reward": 1.0})
    trackers.close()
    (folder,) = (tmp_path / "runs").iterdir()
    events = EventAccumulator(str(folder)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("train/loss")] == [(1, 0.25), (2, 0.125)]
    assert [event.step for event in events.Scalars("train/fastslow/reward")] == [2]


def test_unknown_trackers_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"output.report_to names nothing, which .* tracker: .*tensorboard"):
        check_trackers(["nothing"])
