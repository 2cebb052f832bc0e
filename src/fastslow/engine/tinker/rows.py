"""From the rows of an update to the sequences that a server trains on, and how a server combines their losses.

The update averages over its N tokens: loss = −1/N Σ sg(min(ρ, cap)) · A · log π + kl/N Σ ρ · k3, where ρ is the ratio to the
policy that sampled a token and k3 estimates the KL to the base model from log π − log π_base. The gradient of a token's
second term is ρ · (log π − log π_base) · ∇log π, so the gradient of both is −Σ w · ∇log π with

    w = (min(ρ, cap) · A − kl · ρ · (log π − log π_base)) / N.

A server with CISPO gets A/N if there is no penalty. Otherwise w comes from a forward pass, and the server's importance
sampling gets it as the advantage against the policy's own log-probabilities, so that its ratio is 1: the same gradient.

The API sums the losses of tokens. SkyRL's JAX backend (0.4.0) averages over the tokens of a sequence, prompt included, and
then over the sequences of an update. The optimizer's reply has the gradient norm, so three small updates of a separate
adapter with a learning rate of 0 tell which (`find_reduction`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fastslow.base.errors import RecipeError
from fastslow.engine.base import Row, Update

if TYPE_CHECKING:
    from fastslow.engine.tinker.sdk import Adapter, Service

Floats = NDArray[np.float64]
Reduction = Literal["sum", "sequence-mean"]
SHORT, LONG = 8, 12
CLOSE = 0.02
"""Relative difference of two norms that counts as none."""


@dataclass(frozen=True)
class Sequenced:
    """One sequence of an update. Log-probabilities, which importance ratios are taken against, and advantages belong to its
    tokens from the second on."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    advantages: Sequence[float]


@dataclass(frozen=True)
class Adam:
    """One optimizer step, with the constants of the local engine."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    eps: float = 1e-8


STILL = Adam(0.0, max_grad_norm=1e9)


def sequences(update: Update) -> list[Sequenced]:
    """The rows with the advantages of CISPO, and the log-probabilities from sampling."""
    tokens = _tokens(update)
    return [
        Sequenced(
            (*row.turn.prompt_ids, *row.turn.completion.ids),
            _padded(row, row.turn.completion.logprobs),
            _padded(row, [row.advantage / tokens] * len(row.turn.completion.ids)),
        )
        for row in update.rows
    ]


def weighted(
    update: Update, policy: Sequence[Floats], base: Sequence[Floats], cap: float, kl: float
) -> list[Sequenced]:
    """The rows with the weights above as advantages, against the policy's own log-probabilities."""
    tokens = _tokens(update)
    made = []
    for row, logp_T, base_T, sampled_T in zip(update.rows, policy, base, _sampled(update), strict=True):
        ratio_T = np.exp(logp_T - sampled_T)
        weight_T = (np.minimum(ratio_T, cap) * row.advantage - kl * ratio_T * (logp_T - base_T)) / tokens
        made.append(
            Sequenced(
                (*row.turn.prompt_ids, *row.turn.completion.ids),
                _padded(row, logp_T.tolist()),
                _padded(row, weight_T.tolist()),
            )
        )
    return made


def rescaled(rows: Sequence[Sequenced], reduction: Reduction, multiple: int) -> list[Sequenced]:
    """The rows for a server that combines token losses in its own way.

    `sequence-mean` averages over the tokens of a sequence and then over sequences; advantages are multiplied by both numbers.
    Such a server also compiles for each number of sequences: short ones without advantages fill up to a multiple.
    """
    if reduction == "sum":
        return list(rows)
    fillers = [Sequenced((0, 0), (0.0,), (0.0,))] * (-len(rows) % multiple)
    count = len(rows) + len(fillers)
    scaled = [
        replace(row, advantages=[count * len(row.advantages) * value for value in row.advantages]) for row in rows
    ]
    return [*scaled, *fillers]


def completion_part(update: Update, logprobs: Sequence[Sequence[float]]) -> list[Floats]:
    """The log-probabilities of completions, from those of whole sequences, which fillers may follow."""
    return [
        np.asarray(values[-len(row.turn.completion.ids) :], dtype=np.float64)
        for row, values in zip(update.rows, logprobs[: len(update.rows)], strict=True)
    ]


def measure(
    update: Update, policy: Sequence[Floats], base: Sequence[Floats] | None, cap: float, kl: float
) -> dict[str, float | None]:
    """The loss, the mean KL estimate, and the mean difference to the sampler's log-probabilities for fresh rows; from the
    log-probabilities before the update."""
    tokens, loss, divergence = _tokens(update), 0.0, 0.0
    gaps: list[Floats] = []
    for index, (row, logp_T, sampled_T) in enumerate(zip(update.rows, policy, _sampled(update), strict=True)):
        ratio_T = np.exp(logp_T - sampled_T)
        loss -= float((np.minimum(ratio_T, cap) * row.advantage * logp_T).sum())
        if base is not None:
            gap_T = base[index] - logp_T
            divergence += float((ratio_T * (np.exp(gap_T) - gap_T - 1)).sum())
        if row.policy_step == update.step - 1:
            gaps.append(np.abs(logp_T - sampled_T))
    mismatch = float(np.concatenate(gaps).mean()) if gaps else None
    if base is None:
        return {"loss": loss / tokens, "kl": None, "sampler_mismatch": mismatch}
    return {"loss": (loss + kl * divergence) / tokens, "kl": divergence / tokens, "sampler_mismatch": mismatch}


def _tokens(update: Update) -> int:
    return sum(len(row.turn.completion.ids) for row in update.rows)


def _sampled(update: Update) -> list[Floats]:
    return [np.asarray(row.turn.completion.logprobs, dtype=np.float64) for row in update.rows]


def _padded(row: Row, values: Sequence[float]) -> list[float]:
    """Values of a completion, with zeros for the prompt's tokens from the second on."""
    return [0.0] * (len(row.turn.prompt_ids) - 1) + list(values)


def gradient_norm(numbers: Mapping[str, float]) -> float | None:
    """The gradient norm in an optimizer's reply, under whatever prefix; None if there is none."""
    return next((value for key, value in numbers.items() if key.rpartition("/")[2] == "grad_norm"), None)


async def find_reduction(service: Service) -> Reduction:
    """From the gradient of a sequence, of one with more tokens that have no advantage, and beside one without advantages."""
    adapter = await service.create(1, 0)
    alone = await _norm(adapter, _sequence(SHORT, 1.0))
    if alone is None or not alone:  # a server that does not say follows the API
        return "sum"
    longer = await _norm(adapter, _sequence(LONG, 1.0))
    beside = await _norm(adapter, _sequence(SHORT, 1.0), _sequence(LONG, 0.0))
    assert longer is not None, "it was there before"
    assert beside is not None, "it was there before"
    expected: dict[Reduction, tuple[float, float]] = {
        "sum": (1.0, 1.0),
        "sequence-mean": ((SHORT - 1) / (LONG - 1), 0.5),
    }
    for reduction, (first, second) in expected.items():
        if math.isclose(longer / alone, first, rel_tol=CLOSE) and math.isclose(beside / alone, second, rel_tol=CLOSE):
            return reduction
    raise RecipeError(
        f"{service.address} combines the losses of tokens in an unknown way: four tokens without advantage change the "
        f"gradient by {longer / alone:.3f} and a sequence without advantages by {beside / alone:.3f}, expected 1 and 1 (sum) "
        f"or {expected['sequence-mean'][0]:.3f} and 0.5 (sequence-mean); use a server that sums, as the API does"
    )


async def _norm(adapter: Adapter, *sequences: Sequenced) -> float | None:
    """The gradient norm of sequences, whose importance ratios are 1."""
    nothing = [Sequenced(each.tokens, each.logprobs, [0.0] * len(each.advantages)) for each in sequences]
    logprobs = await adapter.backward(nothing, "importance_sampling", {})
    await adapter.step(STILL)
    rows = [Sequenced(row.tokens, found, row.advantages) for row, found in zip(sequences, logprobs, strict=True)]
    await adapter.backward(rows, "importance_sampling", {})
    return gradient_norm(await adapter.step(STILL))


def _sequence(length: int, advantage: float) -> Sequenced:
    """Tokens 1, 2, 3, …; those from the sixth to the eighth have the advantage."""
    advantages = [advantage if 5 <= place < SHORT else 0.0 for place in range(1, length)]
    return Sequenced(range(1, length + 1), [0.0] * (length - 1), advantages)
