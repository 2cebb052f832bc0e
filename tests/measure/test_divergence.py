"""The KL from the base model, against the definition written out."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fastslow.measure.divergence import divergence
from fastslow.models.load import load_policy
from fastslow.recipe import build_recipe
from fastslow.rollouts.records import Completion, Context, Rollout, Turn
from fastslow.rollouts.world import World
from fastslow.slow.trainer import FastSlowTrainer
from fastslow.tasks import Example, Feedback


def test_it_is_the_mean_over_written_tokens_of_the_full_kl(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = build_recipe(
        {"model": str(tiny_folder), "task": "star-graph", "slow": {"problems": 2, "group": 4, "microbatch": 8}}
        | {"fast": {"population": 4}}
    )
    trainer = FastSlowTrainer(load_policy(recipe.model), recipe, tmp_path, World())
    draw = torch.Generator().manual_seed(1)
    turns = [
        tuple(tuple(torch.randint(3, 20, (size,), generator=draw).tolist()) for size in sizes)
        for sizes in ((3, 2), (7, 5), (1, 1), (4, 9))
    ]
    rollouts = [
        Rollout(
            Example(str(number), {}),
            Context({"system": ""}),
            0,
            (Turn("system", "", prompt, Completion(written, (0.0,) * len(written)), ""),),
            Feedback(0.0),
        )
        for number, (prompt, written) in enumerate(turns)
    ]
    assert divergence(trainer, rollouts) == pytest.approx(0, abs=1e-7)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.05)
    total, count = 0.0, 0
    for prompt, written in turns:
        ids = torch.tensor([[*prompt, *written]])
        with torch.no_grad():
            p = torch.softmax(trainer.model(ids).logits[0].double(), -1)
            q = torch.softmax(trainer.ref_model(ids).logits[0].double(), -1)
        for position in range(len(prompt) - 1, len(prompt) + len(written) - 1):
            total += sum(float(a * (a / b).log()) for a, b in zip(p[position], q[position], strict=True))
            count += 1
    assert count == sum(len(written) for _, written in turns)
    assert divergence(trainer, rollouts) == pytest.approx(total / count, rel=1e-4)
    assert trainer.shared_prefix
    trainer.shared_prefix = False  # as where the model takes no trees
    assert divergence(trainer, rollouts) == pytest.approx(total / count, rel=1e-4)
