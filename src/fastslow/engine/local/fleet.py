"""Sampling with running vLLM servers: each step's LoRA adapter is written to the run folder and handed to all of them.

Before the run, every server loads the adapter and answers one request, whose log-probabilities must be the policy's: so a
wrong model, a server without LoRA, a folder that it cannot read, or log-probabilities without temperature are found first.
With several processes, each one sends the requests of its own rollouts, and the main one hands over the adapter.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch
from torch.distributed.tensor import DTensor

from fastslow.base.errors import RecipeError, RunError, cause
from fastslow.base.world import derive_seed, wait_for
from fastslow.engine.base import MISMATCH
from fastslow.engine.local.http import Refused, Unavailable
from fastslow.engine.local.sampler import evaluating
from fastslow.engine.local.servers import Adapter, Server, connect, request_body
from fastslow.recipe import Recipe
from fastslow.records import Completion, Ready, Sampling

if TYPE_CHECKING:
    from fastslow.engine.local.trainer import Trainer

QUESTION = "Name a river, a colour and a number, and say what they have in common."
PROBE = Sampling(2.0, 1.0, 32)
"""Unlikely tokens, whose probability depends much on the weights and on temperature."""


class Fleet:
    def __init__(self, trainer: Trainer, recipe: Recipe, folder: Path) -> None:
        self.trainer, self.recipe, self.world = trainer, recipe, trainer.world
        self.servers = connect(recipe)
        self.servers.vocabulary = trainer.accelerator.unwrap_model(trainer.model).get_input_embeddings().num_embeddings
        self._handed = -1
        """The version of the weights that the servers have."""
        self._tally: dict[str, dict[str, Any]] = self.servers.tally()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._adapters: list[Adapter] = []
        try:
            self._name, self._place = self.world.from_main(lambda: self._make_folder(folder))
            if recipe.method != "gepa":
                self._write()
            self.world.from_main(lambda: wait_for(self._check()))
        except BaseException:
            self.close()
            raise

    def _make_folder(self, folder: Path) -> tuple[str, Path]:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"fastslow-{uuid4().hex[:8]}"
        self._folder = tempfile.TemporaryDirectory(prefix=f"{name}-", dir=folder.absolute())
        place = Path(self._folder.name)
        place.chmod(0o755)  # servers may run as another user
        return name, place

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, ready: Ready | None = None
    ) -> list[Completion]:
        async def one(index: int, prompt: Sequence[int]) -> Completion:
            chosen = derive_seed(seed, index) if index else seed
            completion = await self.servers.complete(prompt, sampling, chosen, self.trainer.eos_token_ids)
            if ready is not None:
                ready(index, completion)
            return completion

        return list(await asyncio.gather(*(one(index, prompt) for index, prompt in enumerate(prompts))))

    def sync(self) -> float:
        """Hand the adapter over if it has changed; return the seconds that took. All processes call it together."""
        if self.recipe.method == "gepa" or self._handed == self.trainer.version:
            return 0.0
        started = time.perf_counter()
        adapter = self._write()
        self.world.from_main(lambda: wait_for(self.servers.publish(adapter)))
        tallies = self.world.gather(self.servers.tally())
        self._tally = {
            address: {key: sum(tally[address][key] for tally in tallies) for key in counts}
            for address, counts in tallies[0].items()
        }
        return time.perf_counter() - started

    def _write(self) -> Adapter:
        """Write the adapter as a new version, and remove the one before the last."""
        trainer, version = self.trainer, self.trainer.version
        adapter = Adapter(f"{self._name}-{version}-{len(self._adapters)}", self._place / str(len(self._adapters)))
        trained = [(name, weight) for name, weight in trainer.model.named_parameters() if weight.requires_grad]
        weights = {name: weight.full_tensor() if isinstance(weight, DTensor) else weight for name, weight in trained}

        def write() -> None:
            try:
                model = trainer.accelerator.unwrap_model(trainer.model)
                model.save_pretrained(adapter.path, state_dict=weights, save_embedding_layers=False)
                for old in self._adapters[-2:-1]:
                    shutil.rmtree(old.path)
            except OSError as error:
                raise RunError(f"the adapter for the vLLM servers was not written: {cause(error)}") from error

        self.world.from_main(write)
        self._adapters.append(adapter)
        self.servers.adapter, self._handed = adapter, version
        return adapter

    async def _check(self) -> None:
        prompt = self.trainer.tokenizer(QUESTION)["input_ids"]
        for server in self.servers.servers:
            await self._check_server(server, prompt)

    async def _check_server(self, server: Server, prompt: list[int]) -> None:
        adapter, where = self.servers.adapter, server.address
        try:
            if adapter is not None:
                await server.load(adapter)
        except (Unavailable, Refused) as error:
            assert self.recipe.model.lora is not None, "the recipe check"
            rank = max(8, 1 << (self.recipe.model.lora.rank - 1).bit_length())  # vLLM takes powers of two from 8 on
            raise RecipeError(
                f"{where} does not load the adapter of the run folder ({error}); start it with "
                f"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora --max-lora-rank {rank}, and put "
                "output.folder where it can read"
            ) from error
        asked = {"model": adapter.name if adapter else server.model, "ignore_eos": True}
        try:
            answer = await server.complete({**request_body(prompt, PROBE, 0, ()), **asked}, self.servers.timeout)
        except (Unavailable, Refused) as error:
            raise RecipeError(f"{where}, which serves {server.model}, does not answer a request: {error}") from error
        name, sampling = self.recipe.model.name, self.recipe.sampling
        tempered, raw = (self._gap(prompt, answer, temperature) for temperature in (PROBE.temperature, 1.0))
        if not min(tempered, raw) <= MISMATCH:  # NaN is a difference too
            raise RecipeError(
                f"{where} serves {server.model}, whose log-probabilities differ from those of model.name={name} by "
                f"{tempered:.2f} on average; start it with the same model"
            )
        if tempered > MISMATCH and (sampling.temperature, sampling.top_p) != (1.0, 1.0):
            raise RecipeError(
                f"{where} returns log-probabilities before temperature and top_p, but sampling.temperature="
                f"{sampling.temperature:g} and sampling.top_p={sampling.top_p:g}; start it with --logprobs-mode "
                "processed_logprobs"
            )

    @torch.no_grad()
    def _gap(self, prompt: Sequence[int], answer: Completion, temperature: float) -> float:
        """Mean difference of a server's log-probabilities and the policy's at a temperature."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        ids = torch.tensor([[*prompt, *answer.ids]], device=self.trainer.accelerator.device)
        if int(ids.max()) >= model.get_input_embeddings().num_embeddings:
            return float("inf")
        with evaluating(model), self.trainer.accelerator.autocast():
            logits = model(ids).logits[0, len(prompt) - 1 : -1].float()
        own = torch.log_softmax(logits / temperature, dim=-1).gather(1, ids[0, len(prompt) :, None])[:, 0]
        return float((own.cpu() - torch.tensor(answer.logprobs)).abs().mean())

    @property
    def tally(self) -> Mapping[str, Mapping[str, Any]]:
        """Requests by server; those of other processes as of the last step."""
        return self.servers.tally() if self.world.size == 1 else self._tally

    def close(self) -> None:
        """Take the adapters away from the servers, and remove their folder."""
        if self._folder is not None:
            wait_for(self.servers.close())
            self._folder.cleanup()
