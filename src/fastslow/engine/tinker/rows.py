"""From the rows of an update to the sequences that a server trains on: pure functions.

The update averages over its N tokens: loss = −1/N Σ sg(min(ρ, cap)) · A · log π + kl/N Σ ρ · k3, where ρ is the ratio to the
policy that sampled a token and k3 estimates the KL to the base model from log π − log π_base. The gradient of a token's
second term is ρ · (log π − log π_base) · ∇log π, so the gradient of both is −Σ w · ∇log π with

    w = (min(ρ, cap) · A − kl · ρ · (log π − log π_base)) / N.

A server with CISPO gets A/N if there is no penalty. Otherwise w comes from a forward pass, and the server's importance
sampling gets it as the advantage against the policy's own log-probabilities, so that its ratio is 1: the same gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fastslow.engine.base import Row, Update
from fastslow.engine.tinker.service import Sequenced

Floats = NDArray[np.float64]
Reduction = Literal["sum", "sequence-mean"]


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


@dataclass(frozen=True)
class Measured:
    """What an update was, from the log-probabilities before it."""

    loss: float
    kl: float | None
    sampler_mismatch: float | None


def measure(update: Update, policy: Sequence[Floats], base: Sequence[Floats] | None, cap: float, kl: float) -> Measured:
    """The loss, the mean KL estimate, and the mean difference to the sampler's log-probabilities for fresh rows."""
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
        return Measured(loss / tokens, None, mismatch)
    return Measured((loss + kl * divergence) / tokens, divergence / tokens, mismatch)


def _tokens(update: Update) -> int:
    return sum(len(row.turn.completion.ids) for row in update.rows)


def _sampled(update: Update) -> list[Floats]:
    return [np.asarray(row.turn.completion.logprobs, dtype=np.float64) for row in update.rows]


def _padded(row: Row, values: Sequence[float]) -> list[float]:
    """Values of a completion, with zeros for the prompt's tokens from the second on."""
    return [0.0] * (len(row.turn.prompt_ids) - 1) + list(values)
