"""The policy in training as its own reflection model."""

from __future__ import annotations

from fastslow.base.concurrency import wait_for
from fastslow.engine.base import Engine
from fastslow.fast.reflection.base import ChatFailed, Reply
from fastslow.records import Sampling
from fastslow.rollouts.chat import ChatFormat


class PolicyChat:
    """Answers through the policy's engine. All processes call it together and hear the main one's answer."""

    def __init__(self, engine: Engine, chat: ChatFormat, sampling: Sampling) -> None:
        self.engine, self.chat, self.sampling = engine, chat, sampling

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
