"""The losses against closed forms; against stock TRL in tests/engine/test_trainer.py."""

from __future__ import annotations

import inspect
import io
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from fastslow.base.errors import RecipeError
from fastslow.engine.base import Batch
from fastslow.launch.start import train
from fastslow.recipe import SlowRecipe, build_recipe
from fastslow.recipe.parts import LOSS
from fastslow.runs.view import make_view
from fastslow.slow.losses import objective, try_out

LOSSES = list(LOSS.registry.built_in)

RATIOS = [[1.0, 1.5, 0.5], [6.0, 0.1, 1.0]]
LOGPROBS = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -0.2, -1.0]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
ADVANTAGES, SCALES = [0.5, -2.0], [2.0, 0.25]


def batch(**changed: Any) -> Batch:
    """Two rows, the second with two tokens, of an update with 10 tokens in 4 rows."""
    advantages = torch.tensor(ADVANTAGES)
    made = Batch(
        logprobs_RT=LOGPROBS.clone().requires_grad_(),
        behaviour_RT=LOGPROBS - torch.tensor(RATIOS).log(),
        reference_RT=None,
        advantages_R=advantages,
        balanced_R=advantages * torch.tensor(SCALES),
        mask_RT=MASK,
        tokens=10,
        rows=4,
        most_tokens=8,
    )
    return replace(made, **changed)


def tokens() -> list[tuple[int, float, float, float]]:
    """Row, ratio, log-probability and advantage of each token."""
    return [
        (row, RATIOS[row][place], LOGPROBS[row, place].item(), ADVANTAGES[row])
        for row in (0, 1)
        for place in range(int(MASK[row].sum()))
    ]


def clipped(ratio: float, advantage: float, clip: float = 0.2) -> float:
    return -min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)


def of_rows(values: list[tuple[int, float]]) -> float:
    return sum(value / int(MASK[row].sum()) for row, value in values) / 4


@pytest.mark.parametrize(("aggregation", "scales"), [("problem", SCALES), ("token", [1.0, 1.0])])
def test_cispo_caps_the_ratio_and_keeps_every_gradient(aggregation: str, scales: list[float]) -> None:
    made = batch()
    loss, numbers = objective(SlowRecipe(loss={"name": "cispo", "ratio_cap": 4.0, "aggregation": aggregation}))(made)
    expected = sum(-min(ratio, 4.0) * a * scales[row] * logp for row, ratio, logp, a in tokens()) / 10
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    slopes = [-min(ratio, 4.0) * a * scales[row] / 10 for row, ratio, _, a in tokens()]
    assert made.logprobs_RT.grad[MASK.bool()].tolist() == pytest.approx(slopes)
    assert not numbers["clipped"].any()  # the ratio of 6 has a negative advantage


def test_clipped_losses_differ_in_their_averages() -> None:
    each = [(row, clipped(ratio, a)) for row, ratio, _, a in tokens()]
    total = sum(value for _, value in each)
    found = {name: objective(SlowRecipe(loss=name))(batch())[0].item() for name in ("grpo", "dr_grpo", "dapo")}
    assert found == pytest.approx({"grpo": of_rows(each), "dr_grpo": total / (4 * 8), "dapo": total / 10})


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (0.5, [[False, True, False], [False, True, False]]),
        (-0.5, [[False, False, True], [False, True, False]]),
        (0.0, [[False, False, False], [False, True, False]]),
    ],
)
def test_a_token_is_clipped_where_its_gradient_is_gone(first: float, expected: list[list[bool]]) -> None:
    """A ratio above 1.2 with a positive advantage, or one below 0.8 with a negative one."""
    made = batch(advantages_R=torch.tensor([first, -2.0]), mask_RT=torch.ones(2, 3))
    loss, numbers = objective(SlowRecipe(loss="grpo"))(made)
    assert numbers["clipped"].tolist() == expected
    loss.backward()
    assert (made.logprobs_RT.grad[:, :] == 0).tolist() == [
        [clips or not first for clips in expected[0]],
        expected[1],
    ]


@pytest.mark.parametrize("loss", [{"name": "cispo", "ratio_cap": 0.5}, {"name": "grpo", "clip": 0.05}])
def test_ranges_are_positive(loss: dict[str, Any]) -> None:
    (option,) = loss.keys() - {"name"}
    assert SlowRecipe(loss=loss).loss.options[option] == loss[option]
    with pytest.raises(ValueError, match="greater than 0"):
        SlowRecipe(loss={**loss, option: 0})


def test_gspo_has_one_ratio_for_a_row() -> None:
    means = [math.prod(RATIOS[0]) ** (1 / 3), math.sqrt(RATIOS[1][0] * RATIOS[1][1])]
    expected = sum(clipped(ratio, a) for ratio, a in zip(means, ADVANTAGES, strict=True)) / 4
    assert objective(SlowRecipe(loss="gspo"))(batch())[0].item() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["grpo", "gspo"])
def test_a_row_of_one_token_weighs_as_much_as_a_long_one(name: str) -> None:
    made = batch(mask_RT=torch.tensor([[1, 0, 0], [0, 0, 0]]), behaviour_RT=LOGPROBS - 0.1)
    assert objective(SlowRecipe(loss=name))(made)[0].item() == pytest.approx(clipped(math.exp(0.1), ADVANTAGES[0]) / 4)


@pytest.mark.parametrize("name", LOSSES)
def test_the_penalty_is_averaged_as_the_loss_is(name: str) -> None:
    """k3 times the ratio; its gradient at a ratio of 1 is that of the divergence."""
    made = batch(behaviour_RT=LOGPROBS, reference_RT=LOGPROBS - 0.3)
    loss, numbers = objective(SlowRecipe(loss=name, kl=0.5))(made)
    without, _ = objective(SlowRecipe(loss=name, kl=0.5))(replace(made, reference_RT=None))
    k3 = math.exp(-0.3) + 0.3 - 1
    share = {"grpo": 2 / 4, "gspo": 2 / 4, "dr_grpo": 5 / (4 * 8)}.get(name, 5 / 10)
    assert (loss - without).item() == pytest.approx(0.5 * k3 * share, rel=1e-5)
    assert numbers["kl"][MASK.bool()].tolist() == pytest.approx([k3] * 5, rel=1e-4)
    (loss - without).backward()
    if name != "gspo":  # whose ratio moves with all tokens of a row
        slope = made.logprobs_RT.grad[MASK.bool()].sum().item()
        assert slope == pytest.approx(0.5 * 0.3 * share, rel=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_micro_batches_add_up(name: str) -> None:
    compute, whole = objective(SlowRecipe(loss=name, kl=0.1)), batch(reference_RT=LOGPROBS + 0.1)
    fields = ("logprobs_RT", "behaviour_RT", "reference_RT", "advantages_R", "balanced_R", "mask_RT")
    parts = [replace(whole, **{field: getattr(whole, field)[row : row + 1] for field in fields}) for row in (0, 1)]
    assert sum(compute(part)[0].item() for part in parts) == pytest.approx(compute(whole)[0].item(), rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_options_are_keywords_with_types_and_defaults(name: str) -> None:
    _, *options = inspect.signature(LOSS.registry.find(name)).parameters.values()
    assert options
    for option in options:
        assert option.kind is option.KEYWORD_ONLY
        assert option.default is not option.empty
        assert option.annotation is not option.empty
        assert SlowRecipe(loss=name).loss.options[option.name] == option.default


def test_a_recipe_is_read_without_torch() -> None:
    code = "import sys, fastslow.slow.losses; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


OUTSIDE = """
import torch
from fastslow.slow.losses import Loss, over_tokens


def fine(batch, *, strength: float = 1.0):
    ratio = (batch.logprobs_RT - batch.behaviour_RT).exp()
    return Loss(-strength * ratio * batch.balanced_R[:, None], ratio, over_tokens, {})


def bare(batch):
    return batch.logprobs_RT.mean()


def misspelt(batch):
    return batch.logprobs_RT * batch.advantage_R[:, None]


def unreduced(batch):
    return Loss(batch.logprobs_RT, batch.logprobs_RT.exp(), lambda batch, values: values, {})


def constant(batch):
    return Loss(batch.logprobs_RT.detach(), batch.logprobs_RT.detach(), over_tokens, {})


def rows(batch):
    ratio = batch.logprobs_RT.exp()
    return Loss(-ratio, ratio, over_tokens, {"of rows": batch.advantages_R})


def loose(batch, strength: float = 1.0):
    return fine(batch, strength=strength)
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bare", r"returned Tensor; expected fastslow\.slow\.losses\.Loss\(each_RT"),
        ("misspelt", r"failed with AttributeError: .*'advantage_R'.*; expected fastslow\.slow\.losses\.Loss"),
        ("unreduced", r"has as its mean a tensor of shape \(2, 3\); expected one number"),
        ("constant", r"has as its mean a number without a gradient; expected one number that depends on"),
        ("rows", r"failed with RuntimeError: "),
    ],
)
def test_a_loss_from_outside_is_tried_before_rollouts_are_spent(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(OUTSIDE)
    outside = tmp_path / "outside.py"
    try_out(SlowRecipe.model_validate({"loss": {"name": f"{outside}:fine", "strength": 2}}))
    try_out(SlowRecipe())
    slow = SlowRecipe.model_validate({"loss": f"{outside}:{name}", "kl": 0})
    with pytest.raises(RecipeError, match=rf"slow\.loss=.*outside\.py:{name}, tried on two rows .* {said}"):
        try_out(slow)
    recipe = build_recipe(
        {"model": {"name": "nano", "device": "cpu"}, "task": "rulebook", "slow": {"loss": f"{outside}:{name}"}}
    )
    with pytest.raises(RecipeError, match=r"tried on two rows"):
        train(recipe, tmp_path / "run", make_view(Console(file=io.StringIO())))


def test_options_of_a_loss_stand_after_a_star(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(OUTSIDE)
    with pytest.raises(RecipeError, match=r"loose' takes strength after the batch .* write `\*` before strength"):
        build_recipe({"model": "nano", "task": "rulebook", "slow": {"loss": f"{tmp_path}/outside.py:loose"}})
