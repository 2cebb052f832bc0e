"""Chats with models that this process holds: one that was loaded to be asked, and the policy in training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastslow.base.world import wait_for
from fastslow.engine.base import Engine
from fastslow.fast.reflection.base import ChatFailed, Reply
from fastslow.models.chat import ChatFormat, TextEncoder
from fastslow.records import Sampling


@dataclass
class PolicyChat:
    """Answers through the policy's engine. All processes call it together and hear the main one's answer."""

    engine: Engine
    chat: ChatFormat
    sampling: Sampling
    collective = True

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        prompt = self.chat.prompt(messages, "")
        room = self.sampling.max_tokens if self.engine.max_length is None else self.engine.max_length - len(prompt)
        limit = min(self.sampling.max_tokens, room)
        if limit <= 0:
            reason = f"the reflection prompt of {len(prompt)} tokens fills the model's {self.engine.max_length}"
            raise ChatFailed(reason, asked=False)
        sampling = Sampling(self.sampling.temperature, self.sampling.top_p, limit)
        (mine,) = wait_for(self.engine.sample([prompt], sampling, seed))
        completion = self.engine.world.from_main(lambda: mine)
        return Reply(
            self.chat.answer(completion.ids), len(prompt), len(completion.ids), truncated=len(completion.ids) == limit
        )


@dataclass
class LocalChat:
    """Answers with a loaded causal language model. Every answer has a seed; training's random state is restored."""

    model: Any
    tokenizer: Any
    temperature: float = 1.0
    max_tokens: int = 4096

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        import torch

        if not self.tokenizer.chat_template:
            raise ChatFailed(
                "the reflection model's tokenizer has no chat template; choose a chat model",
                permanent=True,
                asked=False,
            )
        ids = TextEncoder(self.tokenizer).chat(messages, add_generation_prompt=True)
        prompt = torch.tensor([ids], device=self.model.device)
        prompt_tokens = len(ids)
        limit = self._room(prompt_tokens)
        was_training = self.model.training
        self.model.eval()
        try:
            # Every CUDA device is listed because manual_seed reaches all of them, whichever holds the model.
            with torch.no_grad(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                torch.manual_seed(seed)
                output = self.model.generate(
                    input_ids=prompt,
                    attention_mask=torch.ones_like(prompt),
                    max_new_tokens=limit,
                    **self._sampling(),
                )
        finally:
            self.model.train(was_training)
        ids = output[0, prompt_tokens:].tolist()
        return Reply(
            text=self.tokenizer.decode(ids, skip_special_tokens=True),
            prompt_tokens=prompt_tokens,
            completion_tokens=len(ids),
            truncated=len(ids) == limit and ids[-1] not in self._end_ids(),
        )

    def _sampling(self) -> dict[str, Any]:
        # Stated in full: what is left out would come from the model's own generation_config.json.
        common: dict[str, Any] = {"repetition_penalty": 1.0, "pad_token_id": self._pad_id()}
        if self.temperature == 0:
            return {**common, "do_sample": False}
        return {**common, "do_sample": True, "temperature": self.temperature, "top_k": 0, "top_p": 1.0}

    def _room(self, prompt_tokens: int) -> int:
        window = getattr(self.model.config, "max_position_embeddings", None)
        room = self.max_tokens if window is None else min(self.max_tokens, window - prompt_tokens)
        if room < 1:
            reason = f"the reflection prompt has {prompt_tokens} tokens, the reflection model holds {window}"
            raise ChatFailed(reason, asked=False)
        return room

    def _end_ids(self) -> list[int]:
        ends = self.model.generation_config.eos_token_id
        if ends is None:
            ends = self.tokenizer.eos_token_id
        return ends if isinstance(ends, list) else [ends]

    def _pad_id(self) -> int | None:
        return self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else self._end_ids()[0]
