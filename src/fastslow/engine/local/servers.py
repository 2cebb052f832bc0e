"""A fleet of plain `vllm serve` servers: token ids and log-probabilities over their HTTP interface, many requests in flight.

A request goes to the server with the fewest open requests. If that server fails, the request is sent to another one, and the
server rests for a pause that doubles with every failure. The next request after the pause tries it again.

Every version of the adapter has a name of its own, and every request names its version: vLLM refuses a name that it has not
loaded, and a server without the current version gets it before it serves. `load_inplace` would keep one name, but vLLM (0.24
to 0.28) caches prefixes by adapter name, so it would reuse keys and values of older weights
(https://github.com/vllm-project/vllm/issues/42125), and it would read the files again at every decoding step.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastslow.concurrency import wait_for
from fastslow.engine.local.http import Busy, Refused, Unavailable, most_connections, request
from fastslow.errors import RecipeError, RunError
from fastslow.recipe import Recipe, VllmServers
from fastslow.records import Completion, Sampling

QUICK = 20.0
"""Seconds for an answer that takes no computing."""
LOADING = 300.0
"""Seconds to load an adapter: a server that is busy first ends its decoding step."""
PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a server that failed is tried again, and before a request that a busy one refused is sent again: at first,
and after doubling."""
LARGEST_SEED = 2**31


@dataclass(frozen=True)
class Adapter:
    """A version of the policy's LoRA adapter: the name by which servers know it, and its folder, which they can read."""

    name: str
    path: Path


@dataclass
class Server:
    """One server, and what became of the requests to it."""

    address: str
    model: str = ""
    """The name of its base model."""
    version: str = ""
    max_length: int = 0
    open: int = 0
    """Requests under way."""
    answered: int = 0
    failed: int = 0
    died: int = 0
    """How often it stopped answering."""
    problem: str = ""
    """Why it last failed."""
    rests_until: float | None = None
    """When it may be tried again; None while it works."""
    pause: float = PAUSE
    loaded: list[str] = field(default_factory=list)
    """Adapters that it has, oldest first."""
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def describe(self) -> None:
        """Ask what it serves."""
        answer = await request(self.address, "/v1/models", timeout=QUICK)
        cards = answer.get("data", []) if isinstance(answer, dict) else []
        base = next((card for card in cards if card.get("max_model_len") and not card.get("parent")), None)
        if base is None:
            raise Refused(200, "/v1/models names no base model with a max_model_len, as vLLM's does")
        self.model, self.max_length = str(base["id"]), int(base["max_model_len"])
        with suppress(Unavailable, Refused):
            self.version = str((await request(self.address, "/version", timeout=QUICK))["version"])

    async def load(self, adapter: Adapter) -> None:
        """Hand over an adapter, and take away those before the one in use until now."""
        async with self.loading:
            if adapter.name in self.loaded:
                return
            body = {"lora_name": adapter.name, "lora_path": str(adapter.path)}
            try:
                await request(self.address, "/v1/load_lora_adapter", body, timeout=LOADING)
            except Refused as error:
                if "already been loaded" not in error.reason:  # by another process of the run, or the answer was lost
                    raise
            self.loaded.append(adapter.name)
            for old in self.loaded[:-2]:
                with suppress(Unavailable, Refused):
                    await request(self.address, "/v1/unload_lora_adapter", {"lora_name": old}, timeout=QUICK)
                self.loaded.remove(old)

    async def complete(self, body: dict[str, Any], timeout: float) -> Completion:
        answer = await request(self.address, "/v1/completions", body, timeout=timeout)
        if answer.get("model") != body["model"]:
            raise Refused(200, f"it answered as '{answer.get('model')}', not as '{body['model']}'")
        (choice,) = answer["choices"]
        ids, logprobs = choice.get("token_ids"), (choice.get("logprobs") or {}).get("token_logprobs")
        if not ids or not logprobs or len(ids) != len(logprobs):
            raise Refused(200, "its answer lacks token_ids or their log-probabilities; use vLLM 0.20 or later")
        return Completion(tuple(ids), tuple(math.nan if value is None else float(value) for value in logprobs))

    def rest(self, problem: str, *, tried: bool = False) -> None:
        """A request failed: leave the server alone for a while. While it rests, only the request that tried it again counts;
        the others were sent before."""
        if self.rests_until is not None and not tried:
            return
        self.died += self.rests_until is None
        self.problem = problem
        self.rests_until, self.pause = time.monotonic() + self.pause, min(2 * self.pause, LONGEST_PAUSE)


def connect(recipe: Recipe) -> Servers:
    """The servers of a recipe, which all answer."""
    assert isinstance(recipe.sampling.backend, VllmServers)
    servers = Servers(recipe.sampling.backend.vllm, recipe.engine.timeout)
    wait_for(servers.describe(recipe.sampling.max_tokens))
    return servers


class Servers:
    """The servers of a run."""

    def __init__(self, addresses: Sequence[str], timeout: float) -> None:
        self.servers = [Server(address) for address in addresses]
        self.timeout = timeout
        """Seconds to wait for one request, and for the first of the servers when all are down."""
        self.adapter: Adapter | None = None
        """The current version; None: the base model."""
        self._connections = asyncio.Semaphore(most_connections())

    async def describe(self, max_tokens: int) -> None:
        """Ask every server what it serves; one that does not answer, or has no room for a completion, is a `RecipeError`."""
        for server in self.servers:
            try:
                await server.describe()
            except (Unavailable, Refused) as error:
                advice = "set VLLM_API_KEY" if getattr(error, "status", 0) in (401, 403) else "start it, or correct it"
                raise RecipeError(f"no vLLM server answers at {server.address} ({error}); {advice}") from error
            if server.max_length <= max_tokens:
                raise RecipeError(
                    f"{server.address} serves sequences of {server.max_length} tokens, but sampling.max_tokens={max_tokens}; "
                    "start it with a larger --max-model-len, or lower sampling.max_tokens"
                )

    @property
    def max_length(self) -> int:
        return min(server.max_length for server in self.servers)

    async def publish(self, adapter: Adapter) -> None:
        """Make an adapter the current version. Servers that fail now get it before they serve again."""
        self.adapter = adapter

        async def load(server: Server) -> None:
            try:
                await server.load(adapter)
            except (Unavailable, Refused) as error:
                server.failed += 1
                server.rest(str(error))

        await asyncio.gather(*(load(server) for server in self.servers if server.rests_until is None))

    async def complete(self, prompt: Sequence[int], sampling: Sampling, seed: int, ends: Sequence[int]) -> Completion:
        """One completion from the current version, by whichever server answers."""
        async with self._connections:
            return await self._complete(request_body(prompt, sampling, seed, ends))

    async def _complete(self, body: dict[str, Any]) -> Completion:
        failing_since, wait = math.inf, PAUSE
        while True:
            server = self._choose()
            if server is None:
                await asyncio.sleep(PAUSE / 4)
            else:
                resting = server.rests_until is not None
                try:
                    return await self._ask(server, body)
                except Busy:
                    await asyncio.sleep(wait)
                    wait = min(2 * wait, LONGEST_PAUSE)
                except Unavailable as error:
                    server.rest(str(error), tried=resting)
                except Refused as error:
                    raise RunError(f"the vLLM server {server.address} refused a request: {error}") from error
                server.failed += 1
            failing_since = min(failing_since, time.monotonic())
            if time.monotonic() - failing_since > self.timeout:
                raise self._unreachable()

    async def _ask(self, server: Server, body: dict[str, Any]) -> Completion:
        adapter = self.adapter
        server.open += 1
        try:
            if server.rests_until is not None:
                await self._revive(server)
            if adapter is None:
                completion = await server.complete({**body, "model": server.model}, self.timeout)
            else:
                completion = await self._ask_adapted(server, adapter, {**body, "model": adapter.name})
        finally:
            server.open -= 1
        server.pause = PAUSE
        server.answered += 1
        return completion

    async def _revive(self, server: Server) -> None:
        """A server whose rest is over may have been restarted, without its adapters or with another model."""
        model = server.model
        await server.describe()
        if server.model != model:
            raise Unavailable(f"it served {model} and now serves {server.model}")
        server.loaded.clear()
        if self.adapter is not None:
            await _load(server, self.adapter)
        server.rests_until = None

    async def _ask_adapted(self, server: Server, adapter: Adapter, body: dict[str, Any]) -> Completion:
        """A server that was restarted unnoticed does not know the adapter (404), and gets it."""
        try:
            await _load(server, adapter)
            return await server.complete(body, self.timeout)
        except Refused as error:
            if error.status != 404:
                raise
            server.failed += 1
            server.loaded.clear()
            await _load(server, adapter)
            return await server.complete(body, self.timeout)

    def _choose(self) -> Server | None:
        """A server whose rest is over, else the working one with the fewest open requests; None if all rest."""
        now = time.monotonic()
        for server in self.servers:
            if server.rests_until is not None and now >= server.rests_until:
                server.rests_until = now + QUICK  # this request tries it, the others do not wait for that
                return server
        working = [server for server in self.servers if server.rests_until is None]
        return min(working, key=lambda server: server.open, default=None)

    def _unreachable(self) -> RunError:
        states = "; ".join(f"{server.address}: {server.problem or 'busy'}" for server in self.servers)
        return RunError(
            f"no vLLM server has answered for {self.timeout:g} seconds (engine.timeout): {states}; start one, then resume "
            "the run with `fastslow train --resume RUN`, with other servers by sampling.backend.vllm=[…]"
        )

    def tally(self) -> dict[str, dict[str, Any]]:
        """Requests by server: answered, failed and so sent again, and how often the server stopped answering."""
        return {
            server.address: {"answered": server.answered, "failed": server.failed, "died": server.died}
            for server in self.servers
        }


async def _load(server: Server, adapter: Adapter) -> None:
    """Hand over an adapter if the server lacks it. It took the first one, so a refusal is the server's failure."""
    try:
        await server.load(adapter)
    except Refused as error:
        raise Unavailable(error.reason) from error


def request_body(prompt: Sequence[int], sampling: Sampling, seed: int, ends: Sequence[int]) -> dict[str, Any]:
    """A request, with all settings that a server would otherwise take from the model's generation config."""
    return {
        "prompt": list(prompt),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "stop_token_ids": list(ends),
        "seed": seed % LARGEST_SEED,
        "logprobs": 0,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }
