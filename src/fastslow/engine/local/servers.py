"""A fleet of plain `vllm serve` servers: token ids and log-probabilities over their HTTP interface, many requests in flight.

A request goes to the server with the fewest open requests. If that server fails, or its answer is not what vLLM answers, the
request is sent to another one, and the server rests for a pause that doubles with every failure. The next request after the
pause tries it again. A request that a server does not accept is sent to the others too; if none accepts it, the run ends.

Every version of the adapter has a name of its own, and every request names its version: vLLM refuses a name that it has not
loaded, and a server without the current version gets it before it serves. `load_inplace` would keep one name, but vLLM (0.24
to 0.28) caches prefixes by adapter name, so it would reuse keys and values of older weights
(https://github.com/vllm-project/vllm/issues/42125), and it would read the files again at every decoding step.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fastslow.base.errors import RecipeError, RunError
from fastslow.base.world import wait_for
from fastslow.engine.local.http import LARGEST, Busy, Refused, Unavailable, most_connections, request
from fastslow.recipe import Recipe, VllmServers
from fastslow.records import Completion, Sampling

QUICK = 20.0
"""Seconds for an answer that takes no computing."""
LOADING = 300.0
"""Seconds to load an adapter: a server that is busy first ends its decoding step."""
PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a server that failed is tried again, and before a request that a busy one refused is sent again: at first,
and after doubling."""
UNACCEPTABLE = (400, 413, 422)
"""HTTP statuses by which a server refuses a request for what it asks; others say that something is wrong with the server."""
LARGEST_SEED = 2**31
PER_TOKEN = 1024
"""Bytes of an answer for every token of the prompt and of the completion: its id, text and log-probability."""


class _Part(BaseModel):
    """Part of an answer, as far as it is used. Numbers are not read from strings."""

    model_config = ConfigDict(strict=True)


class _Logprobs(_Part):
    token_logprobs: list[Annotated[float, Field(le=0.01, allow_inf_nan=False)]]


class _Choice(_Part):
    token_ids: list[Annotated[int, Field(ge=0)]]
    logprobs: _Logprobs
    finish_reason: str | None = None


class _Answer(_Part):
    model: str
    choices: Annotated[list[_Choice], Field(min_length=1, max_length=1)]


class _Card(_Part):
    id: str
    max_model_len: int | None = None
    parent: str | None = None


class _Models(_Part):
    data: list[_Card]


P = TypeVar("P", bound=_Part)


def _read(form: type[P], answer: Any) -> P:
    try:
        return form.model_validate(answer)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise Unavailable(f"its answer is not that of vLLM 0.20 or later ({where}: {first['msg']})") from error


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
    version: str = ""
    max_length: int = 0
    open: int = 0
    answered: int = 0
    failed: int = 0
    died: int = 0
    """How often it stopped answering."""
    problem: str = ""
    rests_until: float | None = None
    """When it may be tried again; None while it works."""
    busy_until: float = 0.0
    """When it may be asked again after it refused a request for the moment."""
    pause: float = PAUSE
    loaded: list[str] = field(default_factory=list)
    """Adapters that it has, oldest first."""
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def describe(self) -> None:
        """Ask what it serves. A server that was restarted with another model, or for shorter sequences, is not available."""
        cards = _read(_Models, await request(self.address, "/v1/models", timeout=QUICK)).data
        model, length = next(((each.id, each.max_model_len) for each in cards if not each.parent), ("", None))
        if not length:
            raise Unavailable("/v1/models names no base model with a max_model_len, as vLLM's does")
        if self.model and model != self.model:
            raise Unavailable(f"it served {self.model} and now serves {model}")
        if length < self.max_length:
            raise Unavailable(f"it served sequences of {self.max_length} tokens and now serves {length}")
        self.model, self.max_length = model, length
        with suppress(Unavailable, Refused, TypeError, KeyError):
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
            await self.unload(keep=2)

    async def unload(self, keep: int = 0) -> None:
        """Take away all adapters but the newest."""
        for old in self.loaded[: len(self.loaded) - keep]:
            with suppress(Unavailable, Refused):
                await request(self.address, "/v1/unload_lora_adapter", {"lora_name": old}, timeout=QUICK)
            self.loaded.remove(old)

    async def complete(self, body: dict[str, Any], timeout: float) -> Completion:
        largest = LARGEST + PER_TOKEN * (len(body["prompt"]) + body["max_tokens"])
        answered = await request(self.address, "/v1/completions", body, timeout=timeout, largest=largest)
        answer = _read(_Answer, answered)
        if answer.model != body["model"]:
            raise Unavailable(f"it answered as '{answer.model}', not as '{body['model']}'")
        (choice,) = answer.choices
        if choice.finish_reason not in ("stop", "length", None):
            raise Unavailable(f"it did not finish an answer ({choice.finish_reason})")
        ids, logprobs = choice.token_ids, choice.logprobs.token_logprobs
        if len(ids) != len(logprobs) or not 1 <= len(ids) <= body["max_tokens"]:
            found = f"{len(ids)} tokens and {len(logprobs)} log-probabilities"
            raise Unavailable(f"its answer has {found}, but at most {body['max_tokens']} tokens were asked for")
        return Completion(tuple(ids), tuple(logprobs))

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
    def __init__(self, addresses: Sequence[str], timeout: float) -> None:
        self.servers = [Server(address) for address in addresses]
        self.timeout = timeout
        """Seconds to wait for one request, and for the first of the servers when all are down."""
        self.adapter: Adapter | None = None
        """The current version; None: the base model."""
        self.vocabulary = math.inf
        """Tokens that the policy knows."""
        self._answered = -math.inf
        """When a server last answered."""
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
                await server.describe()  # it may have been restarted since the last request
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
        failing_since, busy, wait = math.inf, False, PAUSE
        refused = set[str]()
        while True:
            server = self._choose(refused)
            if server is None:
                await asyncio.sleep(PAUSE / 4)
            else:
                resting = server.rests_until is not None
                busy = False
                try:
                    return await self._ask(server, body)
                except Busy:
                    busy, server.busy_until = True, time.monotonic() + wait
                    wait = min(2 * wait, LONGEST_PAUSE)
                except Unavailable as error:
                    server.rest(str(error), tried=resting)
                except Refused as error:
                    refused.add(server.address)
                    if all(each.address in refused for each in self.servers if each.rests_until is None):
                        raise RunError(f"the vLLM server {server.address} refused a request: {error}") from error
                server.failed += 1
            failing_since = min(failing_since, time.monotonic())
            since = max(failing_since, self._answered) if busy else failing_since  # the busy ones answer others
            if time.monotonic() - since > self.timeout:
                raise self._unreachable()

    async def _ask(self, server: Server, body: dict[str, Any]) -> Completion:
        adapter, resting = self.adapter, server.rests_until is not None
        server.open += 1
        try:
            if resting:
                await self._revive(server, adapter)
            if adapter is None:
                completion = await server.complete({**body, "model": server.model}, self.timeout)
            else:
                completion = await self._ask_adapted(server, adapter, {**body, "model": adapter.name})
            if max(completion.ids) >= self.vocabulary:
                raise Unavailable(f"its answer has the token {max(completion.ids)}, which the policy does not know")
        except Refused as error:
            if resting or error.status not in UNACCEPTABLE:
                raise Unavailable(str(error)) from error
            raise
        finally:
            server.open -= 1
        if resting:
            server.rests_until = None
        server.pause, self._answered = PAUSE, time.monotonic()
        server.answered += 1
        return completion

    async def _revive(self, server: Server, adapter: Adapter | None) -> None:
        """A server that may have been restarted gets the adapter, if it still serves the same model."""
        await server.describe()
        server.loaded.clear()
        if adapter is not None:
            await _load(server, adapter)

    async def _ask_adapted(self, server: Server, adapter: Adapter, body: dict[str, Any]) -> Completion:
        """A server that was restarted unnoticed does not know the adapter (404), and gets it."""
        try:
            await _load(server, adapter)
            return await server.complete(body, self.timeout)
        except Refused as error:
            if error.status != 404:
                raise
            server.failed += 1
            await self._revive(server, adapter)
            return await server.complete(body, self.timeout)

    def _choose(self, refused: Collection[str]) -> Server | None:
        """A server whose rest is over, else the working one with the fewest open requests that has not refused this one; None
        if all rest or are busy."""
        now = time.monotonic()
        for server in self.servers:
            if server.rests_until is not None and now >= server.rests_until:
                server.rests_until = now + QUICK  # this request tries it, the others do not wait for that
                return server
        working = [server for server in self.servers if server.rests_until is None and server.busy_until <= now]
        able = [server for server in working if server.address not in refused]
        return min(able, key=lambda server: server.open, default=None)

    async def close(self) -> None:
        """Take the run's adapters away from the servers that work; one that does not answer keeps them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(QUICK / 4):
                await asyncio.gather(*(server.unload() for server in self.servers if server.rests_until is None))

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
