"""The KL from the base model, against the definition written out."""

from __future__ import annotations

from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import EXAMPLE, local_engine
from transformers import AutoModelForCausalLM

from fastslow.base.errors import RunError
from fastslow.base.world import World
from fastslow.engine.local import hidden
from fastslow.evaluation.measure import divergence, token_divergences
from fastslow.launch import start
from fastslow.launch.evaluate import measure_divergence
from fastslow.recipe import build_recipe, load_recipe
from fastslow.records import Completion, Context, Rollout, Turn
from fastslow.runs.folder import RunFolder
from fastslow.runs.frames import DIVERGENCE, read_divergence
from fastslow.tasks import Example, Feedback

SIZES = (((3, 2), (2, 4)), ((7, 5),), ((1, 1),), (), ((4, 9),))
"""Prompt and completion lengths of every rollout's turns; one has none."""


def make_rollouts(draw: torch.Generator) -> list[Rollout]:
    def turn(prompt: int, written: int) -> Turn:
        ids = [tuple(torch.randint(3, 20, (size,), generator=draw).tolist()) for size in (prompt, written)]
        return Turn("system", "", ids[0], Completion(ids[1], (0.0,) * written), "")

    return [
        Rollout(
            Example(str(number), {}), Context({"system": ""}), 0, tuple(turn(*size) for size in sizes), Feedback(0.0)
        )
        for number, sizes in enumerate(SIZES)
    ]


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}], ids=["full", "lora"])
def test_it_is_the_mean_over_written_tokens_of_the_full_kl(
    lora: dict[str, Any] | None, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = build_recipe(
        {"model": {"name": str(tiny_folder), "lora": lora}, "task": "star-graph"}
        | {"slow": {"problems": 2, "group": 4, "microbatch": 8}, "fast": {"population": 4}}
    )
    engine = local_engine(recipe, tmp_path, World())
    trainer = engine.trainer
    assert (trainer.reference is None) == (lora is not None)
    draw = torch.Generator().manual_seed(1)
    rollouts = make_rollouts(draw)
    assert divergence(engine, rollouts).kl == pytest.approx(0, abs=1e-7)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.05)
    base = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    expected: list[list[float]] = []
    for rollout in rollouts:
        expected.append([])
        for turn in rollout.turns:
            ids = torch.tensor([[*turn.prompt_ids, *turn.completion.ids]])
            with torch.no_grad():
                p = torch.softmax(trainer.model(ids).logits[0].double(), -1)
                q = torch.softmax(base(ids).logits[0].double(), -1)
            for position in range(len(turn.prompt_ids) - 1, ids.size(1) - 1):
                pairs = zip(p[position], q[position], strict=True)
                expected[-1].append(sum(float(a * (a / b).log()) for a, b in pairs))
    mean = np.mean([*chain(*expected)])
    # The interval of a ratio of sums, by leaving each rollout out once: nearly the same number another way.
    left_out = [np.mean([*chain(*expected[:i], *expected[i + 1 :])]) for i in range(5)]
    error = np.sqrt(4 / 5 * np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    assert trainer.shares(trainer.model)
    for chunk, shared in product((1, 7, 1000), (True, False)):  # False: as where the model takes no trees
        monkeypatch.setattr(hidden, "CHUNK_NUMBERS", 25 * chunk)
        trainer.shared_prefix = shared
        found = token_divergences(engine, rollouts)
        assert [len(values) for values in found] == [6, 5, 1, 0, 9]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-6)
        whole = divergence(engine, rollouts)
        assert whole.kl == pytest.approx(mean, rel=1e-4)
        assert whole.tokens == 21
        assert (whole.high - whole.kl) / 1.96 == pytest.approx(error, rel=0.6)
        assert whole.low == pytest.approx(max(0, 2 * whole.kl - whole.high))


@pytest.mark.parametrize("lora", [[], ["model.lora={rank: 4, alpha: 8}"]], ids=["full", "lora"])
def test_every_checkpoint_of_a_run_is_measured_as_it_would_have_been_in_training(
    lora: list[str], by_words: list[str], tmp_path: Path
) -> None:
    settings = ["slow.steps=2", "fast.anchors=4", "fast.budget=48", "slow.learning_rate=1e-2", "slow.warmup_steps=0"]
    settings += ["output.checkpoint_every=1", "evaluation.every=1", "evaluation.problems=4"]
    recipe = load_recipe(EXAMPLE, [*settings, *by_words, *lora, "evaluation.divergence=true"])
    run = RunFolder.open(start.train(recipe, tmp_path / "run"))
    first, *later = run.rows("evals")
    assert first["results"]["seed"]["kl"] == pytest.approx(0, abs=1e-6)
    recorded = {(row["step"], label): result["kl"] for row in later for label, result in row["results"].items()}
    assert all(kl > 1e-5 for (step, _), kl in recorded.items() if step == 2)  # it grows
    said: list[str] = []
    rows = measure_divergence(run.path, progress=said.append)
    assert {(row.step, row.context): pytest.approx(row.kl, rel=1e-4, abs=1e-7) for row in rows} == recorded
    assert len(said) == len(rows) >= 3
    assert all(row.low <= row.kl <= row.high for row in rows)
    assert (run.path / DIVERGENCE).exists()
    assert read_divergence(run.path) == {(row.step, row.context): row.kl for row in rows}


def test_a_run_without_anything_to_measure_is_refused(tmp_path: Path) -> None:
    for method, reason in (("gepa", "kept its weights frozen"), ("rl", "no checkpoint yet")):
        RunFolder.create(tmp_path / method, load_recipe(EXAMPLE, [f"method={method}"])).close()
        with pytest.raises(RunError, match=reason):
            measure_divergence(tmp_path / method, trust=True)
