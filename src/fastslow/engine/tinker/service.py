"""What the engine needs from a server of the Tinker API, and how its failures look.

`sdk.py` implements this with the `tinker` package; tests implement it in memory. Requests that only read (sampling, scoring,
a forward pass) may be repeated. Requests that change the weights are never repeated on the same adapter: when it is unknown
whether one was carried out, the adapter counts as lost, and the engine starts a new one from the last saved state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from fastslow.records import Completion, Sampling

Loss = Literal["cispo", "importance_sampling"]


class Lost(Exception):
    """The server no longer has the adapter or the session: it was restarted, or the session has expired."""


class Refused(Exception):
    """The server does not accept the request; repeating it would not help."""


class Unreachable(Exception):
    """The server does not answer, or answers with errors of its own for too long."""


@dataclass(frozen=True)
class Sequenced:
    """One sequence of an update. Log-probabilities and advantages belong to its tokens from the second on."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    """Importance ratios are taken against these."""
    advantages: Sequence[float]


@dataclass(frozen=True)
class Adam:
    """One optimizer step, with the constants of the local engine."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    eps: float = 1e-8


class Sampler(Protocol):
    """One version of the weights, or the base model."""

    async def sample(self, prompt: Sequence[int], sampling: Sampling, seed: int, ends: Sequence[int]) -> Completion: ...

    async def score(self, tokens: Sequence[int]) -> list[float]:
        """Log-probabilities of the tokens from the second on."""
        ...


class Adapter(Protocol):
    """A LoRA adapter with its optimizer."""

    async def forward(self, sequences: Sequence[Sequenced], loss: Loss) -> list[list[float]]:
        """Log-probabilities of the tokens of each sequence from the second on; no gradient."""
        ...

    async def backward(
        self, sequences: Sequence[Sequenced], loss: Loss, settings: Mapping[str, float]
    ) -> list[list[float]]:
        """Add the gradient of a loss; log-probabilities as from `forward`."""
        ...

    async def step(self, adam: Adam) -> Mapping[str, float]:
        """Apply and clear the gradient; what the server measured."""
        ...

    async def save(self, name: str) -> str:
        """Save weights and optimizer on the server; returns where."""
        ...

    async def publish(self, name: str) -> str:
        """Save the weights for sampling; returns where."""
        ...


class Service(Protocol):
    """A server, and a session with it."""

    address: str
    repeated: int
    """Requests that were sent again so far: refused for the moment (429), failed in the server (5xx), or interrupted."""

    async def create(self, rank: int, seed: int) -> Adapter: ...

    async def restore(self, state: str, *, optimizer: bool = True) -> Adapter:
        """A new adapter with the weights, and the optimizer, of a saved state."""
        ...

    async def sampler(self, weights: str | None) -> Sampler:
        """Of published weights, or of the base model."""
        ...

    async def download(self, weights: str, folder: Path) -> None:
        """Write published weights to a folder as an adapter of PEFT."""
        ...

    async def delete(self, saved: str) -> None:
        """Delete a saved state or published weights."""
        ...

    async def reconnect(self) -> None:
        """Begin a new session."""
        ...

    def close(self) -> None: ...
