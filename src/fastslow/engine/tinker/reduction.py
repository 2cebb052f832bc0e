"""How a server combines the losses of tokens, measured from gradient norms.

The API sums them. SkyRL's JAX backend (0.4.0) averages over the tokens of a sequence, prompt included, and then over the
sequences of an update. The optimizer's reply has the gradient norm, so three small updates of a separate adapter with a
learning rate of 0 tell which: one sequence, the same with more tokens that have no advantage, and the first beside another
one without advantages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from fastslow.base.errors import RecipeError
from fastslow.engine.tinker.rows import Reduction
from fastslow.engine.tinker.service import Adam, Adapter, Sequenced, Service

SHORT, LONG = 8, 12
CLOSE = 0.02
"""Relative difference of two norms that counts as none."""
STILL = Adam(0.0, max_grad_norm=1e9)


def gradient_norm(numbers: Mapping[str, float]) -> float | None:
    """The gradient norm in an optimizer's reply, under whatever prefix; None if there is none."""
    return next((value for key, value in numbers.items() if key.rpartition("/")[2] == "grad_norm"), None)


async def find_reduction(service: Service) -> Reduction:
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
