"""The trained model behind a dspy program."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy_programs import Bare, TurnAndShift, by_halves, letters
from helpers import BRIEF, EXAMPLE

import fastslow
from fastslow.base.errors import RunError
from fastslow.integrations.dspy_model import TrainedModel
from fastslow.launch.results import Run

QUESTION = "zorka : a b c"


@pytest.fixture(autouse=True)
def _adapter() -> Iterator[None]:
    with dspy.context(adapter=Bare(), lm=None):
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """nano, after one short cycle."""
    return fastslow.train(EXAMPLE, tmp_path_factory.mktemp("runs") / "run", **dict(each.split("=") for each in BRIEF))


def program() -> dspy.Module:
    return dspy.Predict(dspy.Signature("question -> answer", "zorka means : write the list backwards."))


def test_a_program_is_answered_by_the_trained_model(run: Run) -> None:
    mine = program()
    mine.set_lm(fastslow.dspy_lm(run).copy(temperature=0.0))
    assert mine(question=QUESTION).answer == "c b a"
    entry = mine.get_lm().history[-1]
    assert entry["usage"]["prompt_tokens"] > 0


def test_it_samples_as_the_runs_evaluations_do(run: Run) -> None:
    lm = fastslow.dspy_lm(run)
    assert (lm.kwargs["temperature"], lm.kwargs["top_p"]) == (0.6, 0.95)
    assert lm.kwargs["max_tokens"] == run.recipe.sampling.max_tokens
    short = lm.copy(max_tokens=1, temperature=0.0)
    (text,) = short("zorka : a b c d e f")
    assert len(text.split()) <= 1


def test_nothing_is_loaded_before_the_first_call(run: Run) -> None:
    engine = TrainedModel(str(run.path), run.step)
    lm = dspy.LM("fastslow/x", engine=engine, cache=False)
    assert "_loaded" not in vars(engine)
    lm("zorka : a b")
    assert "_loaded" in vars(engine)
    assert copy.deepcopy(engine) is engine
    assert "_loaded" not in vars(pickle.loads(pickle.dumps(engine)))


def test_a_bound_program_is_saved_and_loaded(run: Run, tmp_path: Path) -> None:
    bound = program()
    bound.set_lm(fastslow.dspy_lm(run))
    bound.save(tmp_path / "bound.json")
    fresh = program()
    with pytest.raises(ValueError, match="allow_unsafe_lm_state=True"):
        fresh.load(tmp_path / "bound.json")
    fresh.load(tmp_path / "bound.json", allow_unsafe_lm_state=True)
    engine: Any = fresh.get_lm()._engine_spec
    assert (engine.folder, engine.step) == (str(run.path.resolve()), 2)
    assert fresh(question=QUESTION, config={"temperature": 0.0}).answer == "c b a"


def test_the_model_may_be_asked_from_several_threads(run: Run) -> None:
    mine = TurnAndShift()
    mine.set_lm(fastslow.dspy_lm(run))
    result = dspy.Evaluate(devset=letters(4), metric=by_halves, num_threads=2, display_progress=False)(mine)
    assert len(result.results) == 4


def test_mistakes_are_explained(run: Run) -> None:
    with pytest.raises(RunError, match="no run folder 'nowhere'"):
        fastslow.dspy_lm("nowhere")
    mine = program()
    mine.set_lm(fastslow.dspy_lm(run).copy(temperature=0.0))
    with pytest.raises(Exception, match=r"has \d+ tokens, and the model of .* holds 1024"):
        mine(question="zorka : " + "a " * 1100)
