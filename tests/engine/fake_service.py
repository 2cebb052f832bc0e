"""A server of the Tinker API in memory: a policy with one number per word, trained by Adam, and failures on demand."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.engine.tinker.rows import Adam, Sequenced
from fastslow.engine.tinker.sdk import Loss, Lost, Refused, Unreachable
from fastslow.records import Completion, Sampling

BEFORE, AFTER, AWAY, HANGS = "lost before", "lost after", "unreachable", "hangs"
FAILURES = (BEFORE, AFTER, AWAY, HANGS)
"""A server that restarts before or after it carries a request out, does not answer for a moment, or never answers one."""


@dataclass
class Weights:
    """What is trained, with Adam's memory."""

    values: np.ndarray
    first: np.ndarray
    second: np.ndarray
    steps: int = 0

    def copy(self) -> Weights:
        return Weights(self.values.copy(), self.first.copy(), self.second.copy(), self.steps)


@dataclass
class Server:
    """What outlives a session: saved states. What a restart loses: adapters and sessions."""

    words: Sequence[int]
    """The tokens that it samples; the last one ends a completion."""
    losses: Sequence[str] = ("cispo", "importance_sampling")
    reduction: str = "sum"
    says_norm: bool = True
    together: int = 0
    """No request is answered before so many are in flight."""
    full: asyncio.Event = field(default_factory=asyncio.Event)
    failures: dict[int, str] = field(default_factory=dict)
    """What goes wrong at a request, by its number."""
    stored: dict[str, Weights] = field(default_factory=dict)
    adapters: dict[int, Weights] = field(default_factory=dict)
    gradients: list[np.ndarray] = field(default_factory=list)
    """What every optimizer step applied."""
    requests: int = 0
    adapters_made: int = 0
    flying: int = 0
    most: int = 0
    base: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.base = np.linspace(0.5, -0.5, len(self.words))
        self.place = {word: index for index, word in enumerate(self.words)}

    def restart(self) -> None:
        self.adapters.clear()

    async def carried_out(self, work: Any) -> Any:
        """Carry a request out, or fail as planned."""
        self.requests += 1
        failure = self.failures.pop(self.requests, None)
        if failure == BEFORE:
            self.restart()
        if failure == AWAY:
            raise Unreachable("connection refused")
        if failure == HANGS:
            await asyncio.sleep(3600)
        done = work()
        if failure == AFTER:
            self.restart()
            raise Lost("session not found")
        return done

    def logprobs(self, values: np.ndarray) -> np.ndarray:
        logits = self.base + values
        return logits - np.log(np.exp(logits).sum())

    def scored(self, values: np.ndarray, tokens: Sequence[int]) -> list[float]:
        """Log-probabilities from the second token on; words that it never samples have a fixed one."""
        logprobs = self.logprobs(values)
        return [float(logprobs[self.place[token]]) if token in self.place else -1.0 for token in tokens[1:]]


class FakeService:
    """A session with a server."""

    address = "fake://server"

    def __init__(self, server: Server) -> None:
        self.server, self.repeated, self.sessions = server, 0, 1

    async def create(self, rank: int, seed: int) -> FakeAdapter:
        zeros = np.zeros(len(self.server.words))
        return await self.server.carried_out(lambda: self._adapter(Weights(zeros, zeros.copy(), zeros.copy())))

    async def restore(self, state: str, *, optimizer: bool = True) -> FakeAdapter:
        def load() -> FakeAdapter:
            if state not in self.server.stored:
                raise Refused(f"{state} not found")
            found = self.server.stored[state].copy()
            if not optimizer:
                found = Weights(found.values, np.zeros_like(found.values), np.zeros_like(found.values))
            return self._adapter(found)

        return await self.server.carried_out(load)

    def _adapter(self, weights: Weights) -> FakeAdapter:
        self.server.adapters_made += 1
        self.server.adapters[self.server.adapters_made] = weights
        return FakeAdapter(self.server, self.server.adapters_made)

    async def sampler(self, weights: str | None) -> FakeSampler:
        return FakeSampler(self.server, weights)

    async def download(self, weights: str, folder: Path) -> None:
        (folder / "adapter.json").write_text(json.dumps(self.server.stored[weights].values.tolist()))

    async def delete(self, saved: str) -> None:
        del self.server.stored[saved]

    async def reconnect(self) -> None:
        self.sessions += 1

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class FakeSampler:
    server: Server
    weights: str | None

    def _values(self) -> np.ndarray:
        if self.weights is None:
            return np.zeros(len(self.server.words))
        if self.weights not in self.server.stored:
            raise Lost(f"{self.weights} not found")
        return self.server.stored[self.weights].values

    async def sample(self, prompt: Sequence[int], sampling: Sampling, seed: int, ends: Sequence[int]) -> Completion:
        server, draw = self.server, random.Random(f"{seed} {list(prompt)}")
        server.flying += 1
        server.most = max(server.most, server.flying)
        try:
            if server.most >= server.together:
                server.full.set()
            async with asyncio.timeout(60):
                await server.full.wait()
            return await server.carried_out(lambda: self._drawn(sampling, draw, ends))
        finally:
            server.flying -= 1

    def _drawn(self, sampling: Sampling, draw: random.Random, ends: Sequence[int]) -> Completion:
        logprobs = self.server.logprobs(self._values())
        ids: list[int] = []
        while len(ids) < sampling.max_tokens and not (ids and ids[-1] in ends):
            ids.append(draw.choices(self.server.words, np.exp(logprobs))[0])
        return Completion(tuple(ids), tuple(float(logprobs[self.server.place[token]]) for token in ids))

    async def score(self, tokens: Sequence[int]) -> list[float]:
        return await self.server.carried_out(lambda: self.server.scored(self._values(), tokens))


class FakeAdapter:
    def __init__(self, server: Server, number: int) -> None:
        self.server, self.number = server, number
        self.gradient = np.zeros(len(server.words))
        self.rows = 0

    def _weights(self) -> Weights:
        if self.number not in self.server.adapters:
            raise Lost(f"model {self.number} not loaded")
        return self.server.adapters[self.number]

    async def forward(self, sequences: Sequence[Sequenced], loss: Loss) -> list[list[float]]:
        return await self.server.carried_out(
            lambda: [self.server.scored(self._weights().values, row.tokens) for row in sequences]
        )

    async def backward(
        self, sequences: Sequence[Sequenced], loss: Loss, settings: Mapping[str, float]
    ) -> list[list[float]]:
        return await self.server.carried_out(lambda: self._backward(sequences, loss, settings))

    def _backward(self, sequences: Sequence[Sequenced], loss: Loss, settings: Mapping[str, float]) -> list[list[float]]:
        server, values = self.server, self._weights().values
        if loss not in server.losses:
            raise Refused(f"unknown loss function '{loss}'")
        chances = np.exp(server.logprobs(values))
        found = []
        for row in sequences:
            logprobs = server.scored(values, row.tokens)
            scale = 1 / len(logprobs) if server.reduction == "sequence-mean" else 1.0
            for token, logp, old, advantage in zip(row.tokens[1:], logprobs, row.logprobs, row.advantages, strict=True):
                ratio = np.exp(logp - old)
                if loss == "cispo":
                    ratio = np.clip(ratio, settings["clip_low_threshold"], settings["clip_high_threshold"])
                if token in server.place:
                    own = np.eye(len(server.words))[server.place[token]]
                    self.gradient -= scale * ratio * advantage * (own - chances)
            found.append(logprobs)
        self.rows += len(sequences)
        return found

    async def step(self, adam: Adam) -> Mapping[str, float]:
        return await self.server.carried_out(lambda: self._step(adam))

    def _step(self, adam: Adam) -> Mapping[str, float]:
        weights = self._weights()
        gradient = self.gradient / (1 if self.server.reduction == "sum" else max(self.rows, 1))
        self.gradient, self.rows = np.zeros_like(gradient), 0
        self.server.gradients.append(gradient)
        weights.steps += 1
        for name, beta, value in (("first", adam.betas[0], gradient), ("second", adam.betas[1], gradient**2)):
            setattr(weights, name, beta * getattr(weights, name) + (1 - beta) * value)
        first = weights.first / (1 - adam.betas[0] ** weights.steps)
        second = weights.second / (1 - adam.betas[1] ** weights.steps)
        weights.values -= adam.learning_rate * first / (np.sqrt(second) + adam.eps)
        return {"server/grad_norm": float(np.linalg.norm(gradient))} if self.server.says_norm else {}

    async def save(self, name: str) -> str:
        return await self._store(f"fake://{self.number}/weights/{name}")

    async def publish(self, name: str) -> str:
        return await self._store(f"fake://{self.number}/sampler_weights/{name}")

    async def _store(self, path: str) -> str:
        def store() -> str:
            assert path not in self.server.stored
            self.server.stored[path] = self._weights().copy()
            return path

        return await self.server.carried_out(store)
