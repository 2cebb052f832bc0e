"""What every engine promises (engine/base.py), asked of each of them: the local one with all weights, an
adapter, and vLLM servers, the client of a training service, and the engine of pure Python that the tests of the loop use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_service import FakeService, Server
from fake_vllm import FakeVllm
from helpers import local_engine
from slow_helpers import REWARDS, make_recipe
from transformers import AutoModelForCausalLM

from fastslow.base.errors import RunError
from fastslow.base.world import World, wait_for
from fastslow.engine.base import Engine, Update
from fastslow.engine.tinker.engine import TinkerEngine
from fastslow.models.load import load_trained
from fastslow.models.tokenizer import describe
from fastslow.recipe import build_recipe
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Sampling, Turn
from fastslow.slow.update import build_update

PROMPTS = [[4, 5, 6], [9, 3], [7, 8, 9, 10, 11], [4, 5, 6]]
SAMPLING = Sampling(1.0, 1.0, 6)
Make = Callable[[], Engine]


@pytest.fixture(params=["local", "adapter", "servers", "tinker", "fake"])
def make(request: pytest.FixtureRequest, tiny_folder: Path, tmp_path: Path) -> Make:
    """Makes the same engine again and again."""
    if request.param == "fake":
        engines = [FakeEngine() for _ in range(4)]
        for engine in engines:
            engine.tokenizer("0 1 2 3 4 5 6 7 8 9 10 11 12")
        return engines.pop
    if request.param == "tinker":
        server, model = Server((*range(3, 20), 2)), describe(str(tiny_folder), trust_remote_code=False)
        data = make_recipe(tiny_folder, steps=3, learning_rate=0.05, kl=0.1).model_dump()
        chosen = build_recipe({**data, "engine": {"kind": "tinker", "base_url": "http://fake", "reduction": "sum"}})
        return lambda: TinkerEngine(chosen, model, FakeService(server))
    lora = {"rank": 4, "alpha": 8} if request.param != "local" else None
    recipe = make_recipe(tiny_folder, lora=lora, steps=3, learning_rate=0.05, kl=0.1)
    if request.param == "servers":
        backend = {"vllm": [FakeVllm(tiny_folder).address for _ in range(2)]}
        data = recipe.model_dump()
        recipe = build_recipe({**data, "sampling": {**data["sampling"], "backend": backend}})
    return lambda: local_engine(recipe, tmp_path / "run", World())


def sample(engine: Engine, seed: int = 0) -> list[Completion]:
    return wait_for(engine.sample(PROMPTS, SAMPLING, seed))


def update(engine: Engine, step: int) -> Update:
    """From what the engine itself samples, with rewards of its own."""
    groups = [prompt for prompt in PROMPTS for _ in range(4)]
    drawn = wait_for(engine.sample(groups, SAMPLING, seed=step))
    rollouts = [
        Rollout(Example(str(place // 4), {}), Context({"system": ""}), step - 1, (turn,), Feedback(float(reward)))
        for place, (prompt, completion, reward) in enumerate(zip(groups, drawn, REWARDS, strict=True))
        for turn in [Turn("system", "", tuple(prompt), completion, "")]
    ]
    return build_update(rollouts, make_recipe(Path("unused")).slow, step)[0]


def test_sampling_answers_every_prompt_in_order_and_repeatably(make: Make) -> None:
    engine = make()
    first, again, other = sample(engine), sample(engine), sample(engine, seed=1)
    assert len(first) == len(PROMPTS)
    assert first == again
    assert first != other
    for completion in first:
        assert 1 <= len(completion.ids) <= SAMPLING.max_tokens
        assert len(completion.logprobs) == len(completion.ids)
        assert all(value <= 0 for value in completion.logprobs)


def test_what_is_ready_early_is_what_is_returned(make: Make) -> None:
    early: dict[int, Completion] = {}
    drawn = wait_for(make().sample(PROMPTS, SAMPLING, 0, ready=early.__setitem__))
    assert all(drawn[number] == completion for number, completion in early.items())


def test_an_engine_that_can_pause_stops_and_continues(make: Make) -> None:
    """What was drawn so far, in the prompt of a later call, is continued within its own limit."""
    engine = make()
    whole = sample(engine)
    assert all(completion.ended for completion in whole)
    if not engine.pausable:
        return
    limits = [SAMPLING.max_tokens] * len(PROMPTS)
    first = wait_for(engine.sample(PROMPTS, SAMPLING, 0, limits=limits, enough=lambda rows: True))
    assert any(completion.ended for completion in first)
    for drawn, completion in zip(first, whole, strict=True):
        assert drawn.ids == completion.ids[: len(drawn.ids)]
        assert drawn.ended == (len(drawn.ids) == len(completion.ids))
    left = [row for row, completion in enumerate(first) if not completion.ended]
    prompts = [[*PROMPTS[row], *first[row].ids] for row in left]
    most = [SAMPLING.max_tokens - len(first[row].ids) for row in left]
    rest = wait_for(engine.sample(prompts, SAMPLING, 1, limits=most, enough=lambda rows: False))
    assert all(completion.ended for completion in rest)
    assert all(1 <= len(completion.ids) <= limit for completion, limit in zip(rest, most, strict=True))


def test_an_update_changes_what_is_sampled_and_an_empty_one_does_not(make: Make) -> None:
    engine = make()
    engine.prepare()
    before = score(engine)
    numbers = engine.update(Update(1, []))
    assert score(engine) == before
    numbers = engine.update(update(engine, 2))
    assert {"loss", "grad_norm", "learning_rate"} <= numbers.keys()
    assert score(engine) != before
    engine.close()


def score(engine: Engine) -> Any:
    """A number that follows from the weights."""
    if isinstance(engine, FakeEngine):
        return engine.skill
    turn = Turn("system", "", (4, 5, 6), Completion((7, 8, 2), (0.0,) * 3), "")
    return engine.score([turn])[0].policy


def test_a_checkpoint_holds_all_that_the_next_update_needs(make: Make, tmp_path: Path) -> None:
    """Weights, optimizer and step: a restored engine makes the same update from the same rollouts."""
    engine, folder = make(), tmp_path / "checkpoint"
    engine.prepare()
    engine.update(update(engine, 1))
    folder.mkdir()
    engine.save(folder)
    following = update(engine, 2)
    engine.update(following)
    restored = make()
    restored.prepare(folder)
    restored.update(following)
    assert score(restored) == score(engine)
    engine.close()
    restored.close()


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}])
def test_weights_alone_are_enough_to_measure_and_to_export(
    lora: dict[str, int] | None, tiny_folder: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(tiny_folder, lora=lora, steps=2, learning_rate=0.05, kl=0.1)
    engine, fresh = (local_engine(recipe, tmp_path / "run", World()) for _ in range(2))
    engine.prepare()
    engine.update(update(engine, 1))
    (tmp_path / "saved").mkdir()
    engine.save(tmp_path / "saved")
    untrained = score(fresh)
    fresh.load(tmp_path / "saved")
    assert score(fresh) == score(engine) != untrained
    for part in load_trained(recipe.model, tmp_path / "saved"):  # as `fastslow export` does
        part.save_pretrained(tmp_path / "model")
    exported = local_engine(make_recipe(tmp_path / "model", kl=0.1), tmp_path / "run", World())
    assert score(exported) == pytest.approx(score(engine), abs=1e-5)
    assert not hasattr(AutoModelForCausalLM.from_pretrained(tmp_path / "model"), "peft_config")


def test_scores_under_policy_and_base_agree_until_something_is_learnt(tiny_folder: Path, tmp_path: Path) -> None:
    engine = local_engine(make_recipe(tiny_folder, learning_rate=0.05, kl=0.1), tmp_path, World())
    engine.prepare()
    turns = [
        Turn("system", "", tuple(prompt), drawn, "") for prompt, drawn in zip(PROMPTS, sample(engine), strict=True)
    ]
    for turn, scores in zip(turns, engine.score(turns), strict=True):
        assert scores.policy == pytest.approx(turn.completion.logprobs, abs=1e-5)
        assert scores.policy == pytest.approx(scores.base, abs=1e-6)
        assert scores.kl == pytest.approx([0.0] * len(scores.policy), abs=1e-6)
    engine.update(update(engine, 1))
    found = engine.score(turns)
    assert max(value for scores in found for value in scores.kl or ()) > 1e-4
    for turn, scores in zip(turns, found, strict=True):
        assert scores.base == pytest.approx(turn.completion.logprobs, abs=1e-5)


def test_a_save_that_fails_says_why(tiny_folder: Path, tmp_path: Path) -> None:
    engine = local_engine(make_recipe(tiny_folder), tmp_path, World())
    engine.prepare()
    (tmp_path / "file").write_text(json.dumps(None))
    with pytest.raises(RunError, match="File exists"):
        engine.save(tmp_path / "file")
