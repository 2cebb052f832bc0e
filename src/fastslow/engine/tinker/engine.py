"""The engine behind a server of the Tinker API: it samples, trains a LoRA adapter and keeps its states; see `Engine`.

One step on the server: the rows of an update (rows.py) give a gradient, one optimizer step applies it, the state is saved,
and the new weights are published for sampling. A lost session loses nothing: a new adapter starts from the last saved state,
and the updates after it are repeated from their rows, each once. A server may keep one copy of the weights for training and
sampling, so older weights are never sampled once newer ones exist.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from fastslow.base.errors import RunError, warn
from fastslow.base.world import World, derive_seed, wait_for
from fastslow.engine.base import Numbers, TokenScores, Update
from fastslow.engine.tinker.rows import (
    Adam,
    Reduction,
    completion_part,
    find_reduction,
    gradient_norm,
    measure,
    rescaled,
    sequences,
    weighted,
)
from fastslow.engine.tinker.sdk import Adapter, Lost, Refused, Sampler, Service, Unreachable, server_name
from fastslow.models.tokenizer import Described
from fastslow.recipe import Recipe
from fastslow.records import Completion, Enough, Ready, Sampling, Turn

TRIES = 4
"""How often one request is sent, and one update is made, before the run ends."""
PAUSE = 1.0
"""Seconds before the second try; doubled before each further one."""
LARGEST_SEED = 2**31
FILE = "tinker.json"
"""The part of a checkpoint that says where the server keeps the state of the adapter."""
Failures = (Lost, Unreachable, TimeoutError)

T = TypeVar("T")


class TinkerEngine:
    """See `Engine` for the contract of each method."""

    in_flight, pausable = True, False

    def __init__(self, recipe: Recipe, described: Described, service: Service) -> None:
        self.recipe, self.service, self.world = recipe, service, World()
        self.tokenizer, self.max_length, self.ends = described.tokenizer, described.max_length, described.ends
        self.recoveries = 0
        """Sessions that were lost and replaced."""
        self._again = 0
        self._name = f"fastslow-{uuid4().hex[:12]}"
        self._names = 0
        self._adapter: Adapter | None = None
        self._sampler: Sampler | None = None
        self._base: Sampler | None = None
        self._published: str | None = None
        self._state: str | None = None
        """The newest saved state; None is a new adapter."""
        self._kept: set[str | None] = {None}
        """States that a checkpoint refers to; others are deleted when a newer one is saved."""
        self._since: list[Update] = []
        """Updates after the saved state."""
        self._step = 0
        self._generation = 0
        self._recovering = asyncio.Lock()
        self._cispo = not recipe.slow.kl
        """Whether the server computes CISPO: until it refuses, if there is no KL penalty."""
        self._reduction: Reduction | None = None if recipe.engine.reduction == "auto" else recipe.engine.reduction
        self._warned = False

    @property
    def retries(self) -> int:
        return self.service.repeated + self._again

    @property
    def notes(self) -> Mapping[str, Any]:
        return {"backend": "tinker", "why": "set in the recipe"}

    # Sampling and scoring ------------------------------------------------------------------------------------------------

    async def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seed: int,
        *,
        limits: Sequence[int] | None = None,
        enough: Enough | None = None,
        ready: Ready | None = None,
    ) -> list[Completion]:
        async def one(index: int, prompt: Sequence[int]) -> Completion:
            chosen = (derive_seed(seed, index) if index else seed) % LARGEST_SEED
            completion = await self._read(lambda sampler: sampler.sample(prompt, sampling, chosen, self.ends))
            if ready is not None:
                ready(index, completion)
            return completion

        return list(await asyncio.gather(*(one(index, prompt) for index, prompt in enumerate(prompts))))

    def score(self, turns: Sequence[Turn]) -> list[TokenScores]:
        async def one(turn: Turn) -> TokenScores:
            tokens, length = (*turn.prompt_ids, *turn.completion.ids), len(turn.completion.ids)
            policy = await self._read(lambda sampler: sampler.score(tokens))
            base = await self._read(lambda sampler: sampler.score(tokens), base=True)
            return TokenScores(policy[-length:], base[-length:], None)

        async def every() -> list[TokenScores]:
            return list(await asyncio.gather(*map(one, turns)))

        return wait_for(every())

    async def _base_model(self) -> Sampler:
        if self._base is None:
            self._base = await self.service.sampler(None)
        return self._base

    # Training ------------------------------------------------------------------------------------------------------------

    def prepare(self, checkpoint: Path | None = None) -> None:
        async def start() -> None:
            if checkpoint is not None:
                self._step = self._read_saved(checkpoint)
            await self._start(optimizer=True)
            if self._reduction is None:
                self._reduction = await find_reduction(self.service)

        self._set_up(start, checkpoint)

    def load(self, checkpoint: Path) -> None:
        async def start() -> None:
            self._read_saved(checkpoint)
            await self._start(optimizer=False)

        self._set_up(start, checkpoint)

    def _set_up(self, start: Callable[[], Awaitable[None]], checkpoint: Path | None) -> None:
        """Nothing was trained yet, so a failure is a mistake or an outage, and says so."""

        async def limited() -> None:
            await asyncio.wait_for(start(), self.recipe.engine.timeout)

        try:
            wait_for(limited())
        except (Lost, Refused) as error:
            if checkpoint is None:
                raise RunError(f"{self.service.address} does not create an adapter: {error}") from error
            raise RunError(
                f"'{checkpoint}' was saved on {self.service.address} as {self._state}, which cannot be loaded there: "
                f"{error}; use the server, and the storage, that the run was started with"
            ) from error
        except (Unreachable, TimeoutError) as error:
            raise self._unreachable(error) from error

    def update(self, update: Update) -> Numbers:
        slow = self.recipe.slow
        numbers: dict[str, float | None] = {"learning_rate": self._rate(update)}
        self._step = update.step
        if update.rows:
            if slow.loss.aggregation == "problem":
                rows = [replace(row, advantage=row.advantage * row.scale) for row in update.rows]
                update = replace(update, rows=rows)
            numbers |= wait_for(self._updated(update))
        return numbers

    async def _updated(self, update: Update) -> dict[str, float | None]:
        numbers = await self._tried(lambda: self._apply(update))
        self._since.append(update)
        started = time.perf_counter()
        await self._tried(self._sync)
        return {**numbers, "sync_seconds": time.perf_counter() - started}

    async def _apply(self, update: Update) -> dict[str, float | None]:
        slow, adapter = self.recipe.slow, self._adapter
        assert adapter is not None, "prepare was called"
        rows, base = sequences(update), None
        settings = {"clip_low_threshold": 0.0, "clip_high_threshold": slow.loss.ratio_cap}
        policy = None
        if self._cispo:
            try:
                policy = completion_part(update, await adapter.backward(self._fit(rows), "cispo", settings))
            except Refused:  # it does not have this loss; no gradient was added
                self._cispo = False
        if policy is None:
            policy = completion_part(update, await adapter.forward(self._fit(rows), "importance_sampling"))
            if slow.kl:
                scorer = await self._base_model()
                scores = await asyncio.gather(*(scorer.score(row.tokens) for row in rows))
                base = completion_part(update, scores)
            made = weighted(update, policy, base or policy, slow.loss.ratio_cap, slow.kl)
            await adapter.backward(self._fit(made), "importance_sampling", {})
        norm = gradient_norm(await adapter.step(Adam(self._rate(update))))
        self._warn_of_clipping(norm)
        measured = measure(update, policy, base, slow.loss.ratio_cap, slow.kl)
        cost = self._cost(sum(len(row.tokens) for row in rows))
        return {"loss": measured.pop("loss"), "grad_norm": norm, **measured, "cost": cost}

    def _rate(self, update: Update) -> float:
        slow = self.recipe.slow
        return slow.learning_rate * min(1.0, update.step / max(1, slow.warmup_steps)) * update.rate

    def _fit(self, rows: Sequence[Any]) -> list[Any]:
        """The rows as this server needs them."""
        size = self.recipe.slow.microbatch
        return rescaled(rows, self._reduction or "sum", 8 if size == "auto" else size)

    def _cost(self, tokens: int) -> float:
        prices = self.recipe.prices
        if prices is None:
            return 0.0
        passes = 1 if self._cispo else 2
        return (passes * prices.training + (prices.prompt if self.recipe.slow.kl else 0.0)) * tokens / 1e6

    def _warn_of_clipping(self, norm: float | None) -> None:
        limit = Adam.max_grad_norm
        if norm is not None and norm > limit and self._reduction == "sequence-mean" and not self._warned:
            self._warned = True
            warn(f"the gradient norm is {norm:.3g}, above {limit:g}, and this server does not clip it")

    async def _sync(self) -> None:
        """Save the state if it is due, and publish the new weights."""
        if len(self._since) >= self.recipe.engine.save_every:
            await self._save()
        await self._publish()

    async def _save(self) -> None:
        assert self._adapter is not None, "prepare was called"
        former, state = self._state, await self._adapter.save(self._new_name("state"))
        self._state, self._since = state, []
        if former not in self._kept:
            await self._delete(former)

    async def _publish(self) -> None:
        assert self._adapter is not None, "prepare was called"
        former, self._published = self._published, await self._adapter.publish(self._new_name("weights"))
        self._sampler = await self.service.sampler(self._published)
        if former:
            await self._delete(former)

    async def _delete(self, saved: str | None) -> None:
        assert saved is not None, "None is always kept"
        with suppress(Lost, Refused, Unreachable):  # it only costs space
            await self.service.delete(saved)

    def _new_name(self, kind: str) -> str:
        self._names += 1
        return f"{self._name}-{kind}-{self._step}-{self._names}"

    async def _start(self, *, optimizer: bool) -> None:
        """A new adapter, from the saved state if there is one."""
        self._base = self._sampler = self._published = None
        if self._state is None:
            self._adapter = await self.service.create(
                self.recipe.engine.rank, derive_seed(self.recipe.seed) % LARGEST_SEED
            )
        else:
            self._adapter = await self.service.restore(self._state, optimizer=optimizer)
            await self._publish()

    # Failures ------------------------------------------------------------------------------------------------------------

    async def _read(self, ask: Callable[[Sampler], Awaitable[T]], *, base: bool = False) -> T:
        """A request to the newest weights, until the first update those of the base model, or to the base model. It changes
        nothing: it is sent again after a failure, in a new session if the old one is lost."""

        async def request() -> T:
            return await ask((None if base else self._sampler) or await self._base_model())

        return await self._tried(request, (Lost,))

    async def _tried(self, ask: Callable[[], Awaitable[T]], losing: tuple[type[Exception], ...] = Failures) -> T:
        """A change of the weights: after any failure that may have lost it, it is made again from the last saved state. All
        attempts together have a time limit too."""
        try:
            async with asyncio.timeout(2 * TRIES * self.recipe.engine.timeout):
                return await self._attempts(ask, losing)
        except TimeoutError as error:
            raise self._unreachable(error) from error

    async def _attempts(self, ask: Callable[[], Awaitable[T]], losing: tuple[type[Exception], ...]) -> T:
        for attempt in range(TRIES):
            generation = self._generation
            try:
                return await asyncio.wait_for(ask(), self.recipe.engine.timeout)
            except Refused as error:
                raise RunError(f"{self.service.address} refused a request: {error}") from error
            except Failures as error:
                if attempt == TRIES - 1:
                    raise self._unreachable(error) from error
                self._again += 1
                if isinstance(error, losing):
                    await self._recover(generation)
                else:
                    await asyncio.sleep(PAUSE * 2**attempt)
        raise AssertionError("the last attempt raises")

    async def _recover(self, generation: int) -> None:
        """Replace the session and the adapter of a generation; of many requests that find them lost, the first does it."""
        async with self._recovering:
            for attempt in range(TRIES):
                if generation != self._generation:
                    return
                try:
                    await asyncio.wait_for(self._replace(), TRIES * self.recipe.engine.timeout)
                except Refused as error:
                    raise RunError(
                        f"{self.service.address} has lost the session, and {self._state or 'a new adapter'} cannot be "
                        f"loaded: {error}; correct the server, then resume the run"
                    ) from error
                except Failures as error:
                    if attempt == TRIES - 1:
                        raise self._unreachable(error) from error
                    self._again += 1
                    await asyncio.sleep(PAUSE * 2**attempt)

    async def _replace(self) -> None:
        await self.service.reconnect()
        if self._adapter is None:  # frozen weights
            self._base = None
        else:
            await self._start(optimizer=True)
            for update in self._since:
                await self._apply(update)
            if self._since:
                await self._publish()
        self.recoveries += 1
        self._generation += 1

    def _unreachable(self, error: BaseException) -> RunError:
        seconds = f"{self.recipe.engine.timeout:g} seconds (engine.timeout)"
        reason = f"it did not answer within {seconds}" if isinstance(error, TimeoutError) else str(error)
        return RunError(
            f"the server {self.service.address} cannot be used: {reason}; when it is up again, resume the run with "
            "`fastslow train --resume RUN`"
        )

    # Files ---------------------------------------------------------------------------------------------------------------

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        async def save() -> None:
            if self._since or self._state is None:
                await self._tried(self._save)
            if self._published is None:
                await self._tried(self._publish)
            assert self._published is not None, "published just now"
            await self.service.download(self._published, folder)

        try:
            wait_for(save())
        except (Lost, Refused, Unreachable) as error:
            raise RunError(str(error)) from error
        except TimeoutError as error:
            raise self._unreachable(error) from error
        self._kept.add(self._state)
        engine = self.recipe.engine
        data = {"state": self._state, "step": self._step, "model": server_name(self.recipe), "rank": engine.rank}
        (folder / FILE).write_text(json.dumps(data, indent=2))

    def _read_saved(self, checkpoint: Path) -> int:
        """Take the state of a checkpoint, and return its step."""
        try:
            data = json.loads((checkpoint / FILE).read_text())
            self._state, step = str(data["state"]), int(data["step"])
        except FileNotFoundError:
            raise RunError(
                f"'{checkpoint}' has no {FILE}: it was saved by another engine and cannot be used with engine.kind=tinker"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"'{checkpoint / FILE}' cannot be read: {error}") from error
        self._kept.add(self._state)
        return step

    def freeze_teacher(self) -> None:
        raise AssertionError("the recipe check refuses distillation")

    def close(self) -> None:
        self.service.close()
