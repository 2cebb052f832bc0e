"""What the engine needs from a server of the Tinker API, by the `tinker` package; tests have the same in memory.

The package sends requests from a thread of its own, repeats those that fail in transit under the same number, so that a
server carries each out once, and polls for results. Its errors become `Lost`, `Refused` or `Unreachable` here. Its telemetry
is switched off. The API key comes from the environment and is written nowhere.

Requests that only read (sampling, scoring, a forward pass) may be repeated. Requests that change the weights are never
repeated on the same adapter: when it is unknown whether one was carried out, the adapter counts as lost, and the engine
starts a new one from the last saved state.
"""

from __future__ import annotations

import asyncio
import json
import os
import tarfile
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from packaging.specifiers import SpecifierSet

from fastslow.base.errors import RecipeError
from fastslow.base.text import one_line
from fastslow.base.world import in_thread, wait_for
from fastslow.engine.tinker.rows import Adam, Sequenced
from fastslow.models.tokenizer import ADAPTER
from fastslow.recipe import Recipe
from fastslow.records import Completion, Sampling

if TYPE_CHECKING:
    import httpx
    import tinker

Loss = Literal["cispo", "importance_sampling"]
SUPPORTED = SpecifierSet(">=0.25,<0.26")
"""Versions of the package. SkyRL 0.4.0 needs 0.25; later ones fail when it samples."""
HOSTED = "https://tinker.thinkingmachines.dev/services/tinker-prod"
NO_KEY = "tml-none"
"""The package insists on a key; a server of one's own needs none."""
QUICK = 20.0
"""Seconds for the first answer of a server."""
LARGEST, LARGEST_FILE = 2**29, 2**36
"""Bytes of an answer, and of an adapter's archive."""
TRANSFER = 4
"""An adapter may take so many times the timeout of a request."""
FORGOTTEN = ("not loaded", "not found", "stale", "expired", "unknown session", "does not exist")
"""Words by which servers say that they no longer have an adapter, a session or a result."""


class Lost(Exception):
    """The server no longer has the adapter or the session: it was restarted, or the session has expired."""


class Refused(Exception):
    """The server does not accept the request; repeating it would not help."""


class Unreachable(Exception):
    """The server does not answer, or answers with errors of its own for too long."""


def server_name(recipe: Recipe) -> str:
    return recipe.engine.model or recipe.model.name


def connect(recipe: Recipe) -> Service:
    """A session with the recipe's server. A wrong package, address, key or model is a `RecipeError`."""
    require_package()
    address = recipe.engine.base_url or os.environ.get("TINKER_BASE_URL") or HOSTED
    key = os.environ.get("TINKER_API_KEY")
    if key is None and address == HOSTED:
        raise RecipeError("engine.kind=tinker with the hosted service needs an API key; set TINKER_API_KEY")
    service = Service(address, server_name(recipe), key or NO_KEY, recipe.engine.timeout)

    async def checked() -> None:
        async with asyncio.timeout(QUICK):
            await service.require_server()
        async with asyncio.timeout(recipe.engine.timeout):
            await service.reconnect()
            await service.check()

    try:
        wait_for(checked())
    except TimeoutError:
        service.close()
        raise RecipeError(
            f"no server answers at engine.base_url={address} in time; restart it, or correct it"
        ) from None
    except BaseException:
        service.close()
        raise
    return service


def require_package() -> None:
    oldest, newest = sorted(each.version for each in SUPPORTED)
    wanted = f"{oldest} or later, before {newest}"
    try:
        version = metadata.version("tinker")
    except metadata.PackageNotFoundError:
        raise RecipeError(
            f"engine.kind=tinker needs the package tinker, version {wanted}: pip install 'fastslow[tinker]'"
        ) from None
    if not SUPPORTED.contains(version, prereleases=True):
        raise RecipeError(
            f"tinker {version} is installed, but engine.kind=tinker needs {wanted}: pip install 'fastslow[tinker]'"
        )


def _wrong_key(address: str) -> RecipeError:
    given = "the key in TINKER_API_KEY" if os.environ.get("TINKER_API_KEY") else "requests without TINKER_API_KEY"
    return RecipeError(f"{address} does not accept {given}; set TINKER_API_KEY to a valid key of this server")


class Service:
    """A server, and a session with it."""

    def __init__(self, address: str, model: str, key: str, timeout: float) -> None:
        """`timeout` bounds the seconds of every request, however its answer arrives."""
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        self.address, self.model, self._key, self.timeout = address, model, key, timeout
        self.repeated = 0
        """Requests that were sent again so far: refused for the moment (429), failed in the server (5xx), or interrupted."""
        self._client: Any = None

    def _open(self) -> tinker.ServiceClient:
        import httpx
        import tinker

        return tinker.ServiceClient(
            base_url=self.address, api_key=self._key, http_client=httpx.AsyncClient(transport=_transport(self))
        )

    async def require_server(self) -> None:
        """Raise if there is none: the package waits minutes for it."""
        import httpx

        try:
            async with httpx.AsyncClient(transport=_transport(self), timeout=QUICK) as client:
                answer = await client.get(f"{self.address.rstrip('/')}/api/v1/healthz")
        except httpx.HTTPError as error:
            raise RecipeError(
                f"no server answers at engine.base_url={self.address} ({one_line(error) or type(error).__name__}); start it, "
                "or correct the address"
            ) from None
        if answer.status_code in (401, 403):
            raise _wrong_key(self.address)
        if answer.status_code != 200:
            raise RecipeError(
                f"engine.base_url={self.address} answers, but not as a server of the Tinker API (HTTP {answer.status_code} "
                "for /api/v1/healthz); correct the address"
            )

    async def check(self) -> None:
        """Raise if the server refuses the key or does not have the model."""
        import tinker

        try:
            await in_thread(self._client.create_rest_client)  # it blocks at first
            found = await self._client.get_server_capabilities_async()
        except (tinker.AuthenticationError, tinker.PermissionDeniedError):
            raise _wrong_key(self.address) from None
        except (tinker.TinkerError, ValueError) as error:
            version = metadata.version("tinker")
            raise RecipeError(
                f"{self.address} does not answer as tinker {version} expects ({one_line(error, 200)}); use a server for this "
                "version of the API"
            ) from None
        names = [model.model_name for model in found.supported_models if model.model_name]
        if self.model not in names:
            raise RecipeError(
                f"{self.address} does not have the model '{self.model}' (engine.model, or model.name without it); it has "
                f"{', '.join(names[:20]) or 'none'}"
            )

    async def create(self, rank: int, seed: int) -> Adapter:
        async with _explained(self.address):
            client = await self._session()
            adapter = await client.create_lora_training_client_async(base_model=self.model, rank=rank, seed=seed)
        return Adapter(adapter, self.address)

    async def restore(self, state: str, *, optimizer: bool = True) -> Adapter:
        """A new adapter with the weights, and the optimizer, of a saved state."""
        async with _explained(self.address):
            client = await self._session()
            make = (
                client.create_training_client_from_state_with_optimizer_async
                if optimizer
                else client.create_training_client_from_state_async
            )
            return Adapter(await make(state), self.address)

    async def sampler(self, weights: str | None) -> Sampler:
        """Of published weights, or of the base model."""
        named = {"base_model": self.model} if weights is None else {"model_path": weights}
        async with _explained(self.address):
            return Sampler(await (await self._session()).create_sampling_client_async(**named), self.address)

    async def download(self, weights: str, folder: Path) -> None:
        """Write published weights to a folder as an adapter of PEFT."""
        import httpx

        run, _, name = weights.removeprefix("tinker://").partition("/")
        async with _explained(self.address):
            found = await self._client.create_rest_client().get_checkpoint_archive_url_async(run, name)
            with tempfile.TemporaryFile() as packed:
                async with (
                    asyncio.timeout(TRANSFER * self.timeout),
                    httpx.AsyncClient(timeout=self.timeout, follow_redirects=True) as client,
                    client.stream("GET", found.url) as answer,
                ):
                    answer.raise_for_status()
                    async for part in answer.aiter_bytes():
                        packed.write(part)
                        if packed.tell() > LARGEST_FILE:
                            raise Refused(f"its archive of an adapter has more than {LARGEST_FILE:,} bytes")
                packed.seek(0)
                unpack(packed, folder)

    async def delete(self, saved: str) -> None:
        run, _, name = saved.removeprefix("tinker://").partition("/")
        async with _explained(self.address):
            # SkyRL leaves the kind out of the addresses of published weights.
            named = name if "/" in name else f"sampler_weights/{name}"
            await self._client.create_rest_client().delete_checkpoint_async(run, named)

    async def _session(self) -> Any:
        """The client, with a session: the package opens one by a call that blocks."""
        client = self._client
        await in_thread(lambda: client.holder)
        return client

    async def reconnect(self) -> None:
        self._client = await in_thread(self._open)

    def close(self) -> None:
        """The package ends its session when the client is collected."""
        self._client = None


def unpack(packed: IO[bytes], folder: Path) -> None:
    """The adapter of an archive. A few bytes of one can hold files of any size, and any number of them."""
    try:
        with tarfile.open(fileobj=packed) as archive:
            size = 0
            for member in archive:
                size += member.size + tarfile.BLOCKSIZE
                if size > LARGEST_FILE:
                    raise Refused(f"its archive of an adapter holds more than {LARGEST_FILE:,} bytes")
            archive.extractall(folder, filter="data")
        complete_config(folder)
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, TypeError, AttributeError) as error:
        raise Refused(f"its archive of an adapter cannot be read: {one_line(error, 200)}") from error


def complete_config(folder: Path) -> None:
    """Name the adapted layers in an adapter's config, from its weights: SkyRL does not, and peft would then choose others."""
    file = folder / ADAPTER
    config = json.loads(file.read_text())
    if config.get("target_modules"):
        return
    with (folder / "adapter_model.safetensors").open("rb") as weights:
        names = json.loads(weights.read(int.from_bytes(weights.read(8), "little")))
    layers = {name.split(".lora_")[0].rpartition(".")[2] for name in names if ".lora_" in name}
    file.write_text(json.dumps({**config, "target_modules": sorted(layers), "task_type": "CAUSAL_LM"}, indent=2))


@dataclass(frozen=True)
class Sampler:
    """One version of the weights, or the base model."""

    _client: tinker.SamplingClient
    _address: str

    async def sample(self, prompt: Sequence[int], sampling: Sampling, seed: int, ends: Sequence[int]) -> Completion:
        from tinker import types

        settings = types.SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=seed,
            stop=list(ends),
        )
        async with _explained(self._address):
            answer = await self._client.sample_async(types.ModelInput.from_ints(list(prompt)), 1, settings)
        sequence = answer.sequences[0]
        if sequence.logprobs is None or len(sequence.logprobs) != len(sequence.tokens):
            raise Refused("it returned a completion without the log-probability of every token")
        return Completion(tuple(sequence.tokens), tuple(map(float, sequence.logprobs)))

    async def score(self, tokens: Sequence[int]) -> list[float]:
        """Log-probabilities of the tokens from the second on."""
        from tinker import types

        async with _explained(self._address):
            found = await self._client.compute_logprobs_async(types.ModelInput.from_ints(list(tokens)))
        # Some servers begin with None for the first token, others with the second token.
        values = [float(value) for value in list(found)[-(len(tokens) - 1) :] if value is not None]
        if len(values) != len(tokens) - 1:
            raise Refused(f"it returned {len(values)} log-probabilities for {len(tokens)} tokens")
        return values


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter with its optimizer."""

    _client: tinker.TrainingClient
    _address: str

    async def forward(self, sequences: Sequence[Sequenced], loss: Loss) -> list[list[float]]:
        """Log-probabilities of the tokens of each sequence from the second on; no gradient."""
        async with _explained(self._address):
            done = await self._client.forward_async(list(map(_datum, sequences)), loss)
            return _logprobs(await done)

    async def backward(
        self, sequences: Sequence[Sequenced], loss: Loss, settings: Mapping[str, float]
    ) -> list[list[float]]:
        async with _explained(self._address):
            done = await self._client.forward_backward_async(
                list(map(_datum, sequences)), loss, loss_fn_config=dict(settings) or None
            )
            return _logprobs(await done)

    async def step(self, adam: Adam) -> Mapping[str, float]:
        from tinker import types

        settings = types.AdamParams(
            learning_rate=adam.learning_rate,
            beta1=adam.betas[0],
            beta2=adam.betas[1],
            eps=adam.eps,
            weight_decay=adam.weight_decay,
            grad_clip_norm=adam.max_grad_norm,
        )
        async with _explained(self._address):
            done = await self._client.optim_step_async(settings)
            return dict((await done).metrics or {})

    async def save(self, name: str) -> str:
        async with _explained(self._address):
            return str((await (await self._client.save_state_async(name))).path)

    async def publish(self, name: str) -> str:
        async with _explained(self._address):
            return str((await (await self._client.save_weights_for_sampler_async(name))).path)


def _datum(sequence: Sequenced) -> tinker.Datum:
    """Each token but the last predicts the next."""
    from tinker import types

    tokens = list(sequence.tokens)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": list(sequence.logprobs),
            "advantages": list(sequence.advantages),
        },
    )


def _logprobs(answer: Any) -> list[list[float]]:
    return [[float(value) for value in output["logprobs"].data] for output in answer.loss_fn_outputs]


@asynccontextmanager
async def _explained(address: str) -> AsyncIterator[None]:
    """Turn the errors of the package into those above."""
    import httpx
    import tinker
    from tinker.lib.retryable_exception import RetryableException

    try:
        yield
    except (tinker.AuthenticationError, tinker.PermissionDeniedError):
        raise _wrong_key(address) from None
    except (tinker.NotFoundError, RetryableException) as error:
        raise Lost(one_line(error, 200)) from error
    except (tinker.APIConnectionError, tinker.InternalServerError, tinker.RateLimitError, httpx.HTTPError) as error:
        raise Unreachable(one_line(error, 200) or type(error).__name__) from error
    except (tinker.TinkerError, ValueError) as error:
        words = one_line(error, 300)
        raise (Lost if any(word in words.lower() for word in FORGOTTEN) else Refused)(words) from error


def _transport(service: Service) -> httpx.AsyncBaseTransport:
    """A transport that counts the requests that will be sent again, and bounds the time and the size of every answer: a
    client's own limits begin anew with each byte."""
    import httpx

    class Bounded(httpx.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self.stream, self.size, self.ends = stream, 0, time.monotonic() + service.timeout

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in self.stream:
                self.size += len(part)
                if time.monotonic() > self.ends:
                    raise httpx.ReadTimeout(f"an answer took more than {service.timeout:g} seconds")
                if self.size > LARGEST:
                    raise httpx.ReadError(f"an answer has more than {LARGEST:,} bytes")
                yield part

        async def aclose(self) -> None:
            await self.stream.aclose()

    class Counting(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            request.headers["Accept-Encoding"] = "identity"
            try:
                answer = await super().handle_async_request(request)
            except httpx.NetworkError:
                service.repeated += 1
                raise
            if answer.status_code == 429 or answer.status_code >= 500:
                service.repeated += 1
            answer.headers.pop("Content-Encoding", None)  # compressed, a short answer could become a long one
            answer.stream = Bounded(answer.stream)
            return answer

    return Counting(limits=httpx.Limits(max_connections=None, max_keepalive_connections=100), retries=0)
