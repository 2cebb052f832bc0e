"""The update itself, against stock TRL."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from slow_helpers import REWARDS, make_recipe, make_rollouts, make_trainer, weights_after
from stock_trl import stock_weights

from fastslow.models.load import load_policy
from fastslow.recipe import Recipe
from fastslow.records import Rollout
from fastslow.slow.update import build_update


def ours(recipe: Recipe, rollouts: list[Rollout]) -> dict[str, torch.Tensor]:
    return weights_after(make_trainer(recipe, [build_update(rollouts, recipe.slow, step=1)[0]]))


@pytest.mark.parametrize("loss", ["cispo", "grpo", "dr_grpo", "dapo", "gspo"])
@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_one_update_equals_stock_trl(loss: str, kl: float, tiny_folder: Path, tmp_path: Path) -> None:
    setting = make_recipe(tiny_folder, loss=loss, kl=kl, aggregation="token")
    rollouts = make_rollouts([1, 0, 0, 0.5, 0, 1, 1, 1, 0.2, 0.1, 0, 1, 1, 0, 1, 0])
    mine, theirs = ours(setting, rollouts), stock_weights(setting, rollouts, tmp_path)
    before = dict(load_policy(setting.model).model.named_parameters())
    moved = max((theirs[name] - before[name]).abs().max() for name in theirs)
    assert moved > 1e-3  # the update is not nothing
    for name, value in theirs.items():
        torch.testing.assert_close(mine[name], value, atol=1e-6, rtol=1e-6)


def test_a_divergence_that_is_measured_is_no_penalty(tiny_folder: Path) -> None:
    """Also for `internalize`, which measures it whatever the run did."""
    found = {}
    for measured in (False, True):
        recipe = make_recipe(tiny_folder)
        recipe = recipe.model_copy(update={"evaluation": recipe.evaluation.model_copy(update={"divergence": measured})})
        trainer = make_trainer(recipe, [build_update(make_rollouts(REWARDS), recipe.slow, step=1)[0]])
        found[measured] = weights_after(trainer)
        assert (trainer.reference is not None) is measured
    for name, value in found[False].items():
        assert torch.equal(found[True][name], value), name
