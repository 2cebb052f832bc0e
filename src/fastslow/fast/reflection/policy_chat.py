"""The policy in training as its own reflection model."""

from __future__ import annotations

from fastslow.fast.reflection.base import ChatFailed, Reply
from fastslow.records import Sampling
from fastslow.rollouts.chat import ChatFormat
from fastslow.rollouts.play import Sampler
from fastslow.world import World


class PolicyChat:
    """Answers through the policy's sampler. All processes call it together and get the main one's answer."""

    def __init__(
        self, sampler: Sampler, chat: ChatFormat, sampling: Sampling, max_length: int | None, world: World
    ) -> None:
        self.sampler, self.chat, self.sampling = sampler, chat, sampling
        self.max_length, self.world = max_length, world

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        prompt = self.chat.prompt(messages, "")
        room = self.sampling.max_tokens if self.max_length is None else self.max_length - len(prompt)
        limit = min(self.sampling.max_tokens, room)
        if limit <= 0:
            reason = f"the reflection prompt of {len(prompt)} tokens fills the model's {self.max_length}"
            raise ChatFailed(reason, asked=False)
        sampling = Sampling(self.sampling.temperature, self.sampling.top_p, limit)
        (mine,) = self.sampler.sample([prompt], sampling, seed)
        completion = self.world.from_main(lambda: mine)
        return Reply(
            self.chat.answer(completion.ids), len(prompt), len(completion.ids), truncated=len(completion.ids) == limit
        )
