"""The real thing: SkyRL's server on a CPU, in its own environment. `make test-cluster` sets it up and runs this."""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import with_parts
from peft import set_peft_model_state_dict
from rich.console import Console
from safetensors.torch import load_file

from fastslow.base.errors import RecipeError
from fastslow.base.world import World
from fastslow.engine.base import Row, Update
from fastslow.engine.tinker import engine as module
from fastslow.engine.tinker.engine import TinkerEngine
from fastslow.engine.tinker.rows import Adam
from fastslow.engine.tinker.sdk import connect
from fastslow.launch.export import export_run
from fastslow.launch.start import resume, train
from fastslow.models.load import load_policy, load_pretrained
from fastslow.models.tokenizer import describe
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Completion, Turn
from fastslow.runs.view import PlainView
from fastslow.slow.losses import objective
from fastslow.tasks.base import Feedback
from fastslow.tasks.registry import build_task

PYTHON = os.environ.get("FASTSLOW_SKYRL_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="`make test-cluster` sets up SkyRL and runs this")

RANK, ALPHA = 4, 32
LAYERS = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
"""What SkyRL adapts, with an alpha of its own."""
AWAY = 1e6
SEED_TEXT = "Answer the question. " * 12
"""So long that all prompts have 65 to 96 tokens: the server compiles for 32, 48, 64, 96, … tokens, which takes 15 s each."""


@dataclass(frozen=True)
class Proportional(Adam):
    """Adam whose huge epsilon makes every step proportional to the gradient."""

    max_grad_norm: float = 1e9
    eps: float = AWAY


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from skyrl_server import SkyRL

    assert PYTHON is not None
    started = SkyRL(PYTHON, tmp_path_factory.mktemp("skyrl"))
    started.start()
    yield started
    started.kill()


def recipe_for(server: Any, method: str = "fst", **slow: Any) -> Recipe:
    return build_recipe(
        {
            "method": method,
            "model": str(server.model),
            "engine": {"kind": "tinker", "base_url": server.address, "rank": RANK, "reduction": "sequence-mean"},
            "task": {"name": "rulebook", "book": "library", "styles": 0, "shortest": 11, "longest": 12},
            "slow": {"steps": 3, "problems": 2, "group": 4, "microbatch": 8, "warmup_steps": 0, "learning_rate": 1e-3}
            | {"kl": 0.0}
            | with_parts(slow),
            "fast": {"population": 2, "cycle": 3, "anchors": 3, "budget": 8, "minibatch": 2}
            | {"optimizer": {"proposer": "full"}}
            | {"seed_text": SEED_TEXT, "max_tokens": 75},
            "sampling": {"max_tokens": 16},
            "evaluation": {"every": 0},
            "output": {"checkpoint_every": 2, "save_rollouts": False},
        }
    )


def engine_for(recipe: Recipe) -> TinkerEngine:
    return TinkerEngine(recipe, describe(recipe.model.name, trust_remote_code=False), connect(recipe))


def make_rows(engine: TinkerEngine, step: int, seed: int) -> Update:
    """Rows whose ratios are away from one: the sampler's log-probabilities are moved at random."""
    draw = np.random.default_rng(seed)
    turns = []
    for _ in range(6):
        prompt, ids = (
            tuple(draw.integers(3, 440, size).tolist()) for size in (draw.integers(3, 9), draw.integers(2, 12))
        )
        turns.append(Turn("system", "", prompt, Completion(ids, ()), ""))
    rows = []
    for turn, scores in zip(turns, engine.score(turns), strict=True):
        sampled = np.asarray(scores.policy) + draw.uniform(-1, 1, len(scores.policy))
        moved = Turn("system", "", turn.prompt_ids, Completion(turn.completion.ids, tuple(sampled.tolist())), "")
        rows.append(Row(moved, float(draw.normal()), step - 2))
    return Update(step, rows)


def test_one_update_is_that_of_the_local_engine(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Direction and size of the gradient of every layer, for CISPO with ratios away from one and a KL penalty.

    Adam with a huge epsilon moves weights by the gradient. The adapter was trained before, so that both of its matrices have
    one and policy and base model differ.
    """
    first = engine_for(recipe_for(server).model_copy(update={"engine": _auto(server)}))
    first.prepare()
    assert first._reduction == "sequence-mean"  # measured
    first.update(make_rows(first, 2, seed=1))
    (tmp_path / "before").mkdir()
    first.save(tmp_path / "before")

    recipe = recipe_for(server, kl=0.05, ratio_cap=1.5, learning_rate=AWAY)
    engine = engine_for(recipe)
    engine.load(tmp_path / "before")
    update = make_rows(engine, 3, seed=2)
    monkeypatch.setattr(module, "Adam", Proportional)
    numbers = engine.update(update)
    (tmp_path / "after").mkdir()
    engine.save(tmp_path / "after")
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("before", "after"))

    local = _local_trainer(recipe, before, tmp_path)
    logs = local.step(update)
    local_after = {
        name.replace(".default", ""): value.detach()
        for name, value in local.model.named_parameters()
        if "lora_" in name
    }
    dots = sizes = expected_sizes = gaps = 0.0
    for name, weight in before.items():
        moved, expected = after[name] - weight, local_after[name] - weight
        dots += float((moved * expected).sum())
        sizes += float((moved**2).sum())
        expected_sizes += float((expected**2).sum())
        gaps += float(((moved - expected) ** 2).sum())
    cosine, ratio = dots / (sizes * expected_sizes) ** 0.5, (sizes / expected_sizes) ** 0.5
    print(f"cosine {cosine:.7f}, size ratio {ratio:.6f}, relative difference {(gaps / expected_sizes) ** 0.5:.2e}")
    assert len(before) == 2 * 8 * len(LAYERS)
    assert cosine == pytest.approx(1, abs=1e-4)
    assert ratio == pytest.approx(1, abs=1e-3)
    assert numbers["grad_norm"] == pytest.approx(logs["grad_norm"], rel=1e-3)
    assert numbers["loss"] == pytest.approx(logs["loss"], rel=1e-3)
    assert numbers["kl"] == pytest.approx(logs["kl"], rel=1e-2)


def _auto(server: Any) -> Any:
    engine = recipe_for(server).engine
    return engine.model_copy(update={"reduction": "auto"})


def _local_trainer(recipe: Recipe, adapter: dict[str, torch.Tensor], folder: Path) -> Any:
    from fastslow.engine.local.trainer import Trainer

    lora = {"rank": RANK, "alpha": ALPHA, "target_modules": LAYERS}
    data = recipe.model_dump(mode="json")
    data |= {"engine": "local", "model": {**data["model"], "lora": lora, "device": "cpu"}}
    data["slow"] |= {"learning_rate": 1.0}
    chosen = build_recipe(data)
    trainer = Trainer(load_policy(chosen.model), chosen, World(), objective(chosen.slow))
    trainer.make_optimizer, trainer.max_grad_norm = torch.optim.SGD, 1e9
    set_peft_model_state_dict(trainer.model, adapter)
    trainer.prepare()
    return trainer


def view() -> PlainView:
    return PlainView(Console(file=io.StringIO()))


def facts(run: Path) -> dict[str, Any]:
    """The ledger and the contexts of a run, without clocks and without the requests that were sent again."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items() if key not in ("seconds", "phases", "faults")}
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "ledger": plain(json.loads((run / "ledger.json").read_text())),
        "contexts": {
            path.name: plain(json.loads(path.read_text())) for path in sorted((run / "contexts").glob("*.json"))
        },
        "rewards": [(row["step"], row["reward"], row["rewards"]) for row in rows],
    }


def test_fst_survives_a_server_that_is_killed_and_resumes(server: Any, tmp_path: Path) -> None:
    recipe = recipe_for(server)
    whole = train(recipe, tmp_path / "whole", view())

    def kill_in_the_middle() -> None:
        metrics = tmp_path / "killed" / "metrics.jsonl"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 2:  # of three steps; the second trains
            time.sleep(0.05)
        server.kill()
        time.sleep(1)
        server.start()

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    killed = train(recipe, tmp_path / "killed", view())
    killer.join()
    assert facts(killed) == facts(whole)
    trained = [json.loads(line)["trained_rows"] for line in (whole / "metrics.jsonl").read_text().splitlines()]
    print(f"rows trained on in each step: {trained}")
    assert any(trained)
    ledger = json.loads((killed / "ledger.json").read_text())
    assert sum(entry["faults"].get("service", 0) for entry in ledger.values()) > 0

    server.kill()  # and now the run itself stops in the middle: from its checkpoint at step 2, on a server that was restarted
    server.start()
    resumed = resume(whole, view(), step=2)
    assert facts(resumed) == facts(killed)
    exported = export_run(resumed, tmp_path / "model")
    assert not (exported / "adapter_config.json").exists()
    base, merged = (load_pretrained(str(path))[0] for path in (server.model, exported))
    changed = [name for name, weight in merged.state_dict().items() if not torch.equal(weight, base.state_dict()[name])]
    assert {name.split(".")[-2] for name in changed} == set(LAYERS)


def test_rl_runs(server: Any, tmp_path: Path) -> None:
    """With a grader under which the rewards of a group differ, so that every step trains."""
    recipe = recipe_for(server, "rl", steps=2)
    task = build_task(recipe)
    task.grade = lambda example, answer: Feedback((len(answer) % 5) / 4)  # type: ignore[attr-defined]
    given = build_recipe({**recipe.model_dump(mode="json"), "task": "given"})
    run = train(given, tmp_path / "rl", view(), task=task)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert row["trained_rows"] >= 4
        assert row["grad_norm"] > 0
        assert row["sampler_mismatch"] < 1e-3


def test_mistakes_are_found_before_anything_is_spent(server: Any, tmp_path: Path) -> None:
    recipe = recipe_for(server)
    data = recipe.model_dump(mode="json")
    data["engine"] |= {"model": "some/model"}
    with pytest.raises(RecipeError, match=r"does not have the model 'some/model' .*; it has .*nano"):
        train(build_recipe(data), tmp_path / "run", view())
    assert not (tmp_path / "run").exists()
