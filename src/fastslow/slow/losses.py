"""The losses of the slow loop: pure functions of a micro-batch, one for each algorithm.

A loss says what each token costs and how tokens are averaged over the update, so that the result does not depend on how the
update is cut into micro-batches. Its options are its keyword-only parameters. The penalty for the divergence from the base
model is added here, once for all of them. torch is not imported: a recipe is read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from fastslow.base.errors import RecipeError
from fastslow.base.text import one_line
from fastslow.engine.base import Batch, Objective
from fastslow.recipe.parts import LOSS

if TYPE_CHECKING:
    from torch import Tensor

    from fastslow.recipe import SlowRecipe

RatioCap = Annotated[
    float,
    Field(
        gt=0,
        le=1e6,
        description="Importance ratios are clipped at this value (verl's `clip_high` of 3.0 is 1 + 3 = 4 here).",
    ),
]
Aggregation = Annotated[
    Literal["problem", "token"],
    Field(
        description="Also of `method: distill`: `problem` averages over the tokens of each problem and then over problems, "
        "`token` over all tokens of the batch."
    ),
]
Clip = Annotated[float, Field(gt=0, le=1e6, description="Clipping range of the importance ratio around 1.")]


@dataclass(frozen=True)
class Loss:
    """What an algorithm makes of a micro-batch: rows `_R` by tokens `_T`, or by 1 where all tokens of a row are alike."""

    each_RT: Tensor
    """The loss of each token."""
    ratio_RT: Tensor
    """Importance ratios π / π_behaviour, with their gradient."""
    average: Callable[[Batch, Tensor], Tensor]
    """This micro-batch's part of the update's mean."""
    numbers: Mapping[str, Tensor]
    """What is measured at each token."""


def cispo(batch: Batch, *, ratio_cap: RatioCap = 4.0, aggregation: Aggregation = "problem") -> Loss:
    """−sg(min(ρ, cap)) · A · log π: every token keeps its gradient (arXiv 2506.13585).

    `problem` averages over the tokens of each problem and then over problems, `token` over all tokens.
    """
    advantages_R1 = (batch.balanced_R if aggregation == "problem" else batch.advantages_R)[:, None]
    ratio_RT = _ratio(batch)
    loss_RT = -ratio_RT.clamp(max=ratio_cap).detach() * advantages_R1 * batch.logprobs_RT
    clipped_RT = (ratio_RT > ratio_cap) & (advantages_R1 > 0)
    return Loss(loss_RT, ratio_RT, over_tokens, {"clipped": clipped_RT})


def grpo(batch: Batch, *, clip: Clip = 0.2) -> Loss:
    """−min(ρ A, clip(ρ, 1 ± ε) A), averaged over the tokens of each row and then over rows (arXiv 2402.03300)."""
    return _clipped(batch, _ratio(batch), clip, over_rows)


def dr_grpo(batch: Batch, *, clip: Clip = 0.2) -> Loss:
    """GRPO's, divided by a constant, the most tokens that rows may have: long rows weigh no less (arXiv 2503.20783)."""
    return _clipped(batch, _ratio(batch), clip, over_places)


def dapo(batch: Batch, *, clip: Clip = 0.2) -> Loss:
    """GRPO's, averaged over all tokens of the update (arXiv 2503.14476)."""
    return _clipped(batch, _ratio(batch), clip, over_tokens)


def gspo(batch: Batch, *, clip: Clip = 0.2) -> Loss:
    """GRPO's with one ratio for a row, the geometric mean of those of its tokens (arXiv 2507.18071)."""
    log_ratio_RT = (batch.logprobs_RT - batch.behaviour_RT) * batch.mask_RT
    log_ratio_R = log_ratio_RT.sum(-1) / batch.mask_RT.sum(-1).clamp(min=1.0)
    return _clipped(batch, log_ratio_R[:, None].exp(), clip, over_rows)


def _ratio(batch: Batch) -> Tensor:
    return (batch.logprobs_RT - batch.behaviour_RT).exp()


def _clipped(batch: Batch, ratio_RT: Tensor, clip: float, average: Callable[[Batch, Tensor], Tensor]) -> Loss:
    advantages_R1 = batch.advantages_R[:, None]
    loss_RT = -(ratio_RT * advantages_R1).minimum(ratio_RT.clamp(1 - clip, 1 + clip) * advantages_R1)
    low_RT, high_RT = (ratio_RT < 1 - clip) & (advantages_R1 < 0), (ratio_RT > 1 + clip) & (advantages_R1 > 0)
    return Loss(loss_RT, ratio_RT, average, {"clipped": low_RT | high_RT})


def over_tokens(batch: Batch, values_RT: Tensor) -> Tensor:
    """The mean over all tokens."""
    return (values_RT * batch.mask_RT).sum() / batch.tokens


def over_rows(batch: Batch, values_RT: Tensor) -> Tensor:
    """The mean over the tokens of each row, then over rows."""
    means_R = (values_RT * batch.mask_RT).sum(-1) / batch.mask_RT.sum(-1).clamp(min=1.0)
    return means_R.sum() / batch.rows


def over_places(batch: Batch, values_RT: Tensor) -> Tensor:
    """The sum over tokens, divided by as many as there could be."""
    return (values_RT * batch.mask_RT).sum() / (batch.rows * batch.most_tokens)


def kl_estimate(batch: Batch, ratio_RT: Tensor) -> Tensor:
    """KL(π ‖ π_base) at each token: the k3 estimator times the importance ratio. Its gradient is that of the divergence, also
    for rows of an older policy."""
    assert batch.reference_RT is not None
    gap_RT = batch.reference_RT - batch.logprobs_RT
    return (gap_RT.exp() - gap_RT - 1) * ratio_RT


def objective(slow: SlowRecipe) -> Objective:
    """The loss that a recipe names, with its options and the penalty `slow.kl`."""
    loss = partial(LOSS.registry.find(slow.loss.name), **slow.loss.options)
    return partial(penalized, loss=loss, kl=slow.kl)


def try_out(slow: SlowRecipe) -> None:
    """Call a loss from outside the package once, on two rows of a few tokens, before rollouts are spent."""
    if slow.loss.name in LOSS.registry.built_in:
        return
    import torch

    logprobs_RT = torch.full((2, 3), -1.0, requires_grad=True)
    advantages_R, mask_RT = torch.tensor([1.0, -1.0]), torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    behaviour_RT, reference_RT = logprobs_RT.detach() - 0.1, logprobs_RT.detach() + 0.1
    batch = Batch(logprobs_RT, behaviour_RT, reference_RT, advantages_R, advantages_R, mask_RT, 5, 2, 4)
    expected = "expected fastslow.slow.losses.Loss(each_RT, ratio_RT, average, numbers)"
    do = "docs/extending.md has an example"
    given = f"slow.loss={slow.loss.name}, tried on two rows of at most three tokens,"
    try:
        found = LOSS.registry.find(slow.loss.name)(batch, **slow.loss.options)
        if not isinstance(found, Loss):
            raise RecipeError(f"{given} returned {type(found).__name__}; {expected}; {do}")
        mean = found.average(batch, found.each_RT)
        _, numbers = penalized(batch, loss=lambda _: found, kl=slow.kl)
        for value in numbers.values():
            torch.broadcast_to(value, mask_RT.shape)
        shape = tuple(mean.shape)
    except RecipeError:
        raise
    except Exception as error:  # foreign code fails in any way
        raise RecipeError(f"{given} failed with {type(error).__name__}: {one_line(error)}; {expected}; {do}") from error
    if shape or not mean.requires_grad:
        lacks = f"a tensor of shape {shape}" if shape else "a number without a gradient"
        raise RecipeError(
            f"{given} has as its mean {lacks}; expected one number that depends on batch.logprobs_RT; {do}"
        )


def penalized(batch: Batch, *, loss: Callable[[Batch], Loss], kl: float) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The loss of a micro-batch with the penalty, where it has reference log-probabilities, and its numbers."""
    found = loss(batch)
    if batch.reference_RT is None:
        return found.average(batch, found.each_RT), found.numbers
    kl_RT = kl_estimate(batch, found.ratio_RT)
    return found.average(batch, found.each_RT + kl * kl_RT), {**found.numbers, "kl": kl_RT.detach()}
