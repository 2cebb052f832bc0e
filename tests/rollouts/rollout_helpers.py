"""A task of two components and several turns, and an engine that answers by rule: real implementations of both contracts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tiny
from transformers import PreTrainedTokenizerBase

from fastslow.base.world import World, wait_for
from fastslow.models.chat import ChatFormat
from fastslow.records import Completion, Context, Ready, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.base import Ask, Example, Feedback, Options, Split, Task

COLOURS = ["red", "green", "blue"]
SAMPLING = Sampling(1.0, 1.0, 4)


def contexts(count: int) -> list[Context]:
    """Contexts of two texts each, all different: the words a, b, c … for the planner, stop and go for the doer."""
    return [Context({"plan": "abcdef"[index], "do": f"{'abcdef'[index]} go"}) for index in range(count)]


def problems(turns: Sequence[int]) -> list[Example]:
    """Problem i takes turns[i] calls of the model."""
    return [Example(f"problem-{index}", {"turns": count, "index": index}) for index, count in enumerate(turns)]


class PlanAndDo(Task):
    """Asks the planner and the doer in turn, showing each what was said before; the score is the share of distinct words."""

    def __init__(self) -> None:
        super().__init__(Options())

    @property
    def seed_texts(self) -> Mapping[str, str]:
        return contexts(1)[0].texts

    def examples(self, split: Split) -> Sequence[Example]:
        return problems([1, 2, 3])

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        said: list[str] = []
        for turn in range(example.data["turns"]):
            colour = COLOURS[example.data["index"] % len(COLOURS)]
            shown = " ".join([colour, *said])
            said.append((yield Ask("plan" if turn % 2 == 0 else "do", [{"role": "user", "content": shown}])))
        return Feedback(len(set(said)) / max(len(said), 1), " ".join(said))


def echo_context(prompt: str) -> str:
    """Answers with the first word of the system message."""
    words = prompt.split()
    return words[words.index("<system>") + 1] if "<system>" in words else "wait"


@dataclass
class ScriptedEngine:
    """The sampling half of an engine: answers each prompt by a rule on its text; remembers every call."""

    tokenizer: PreTrainedTokenizerBase = field(default_factory=tiny.make_tokenizer)
    rule: Callable[[str], str] = echo_context
    calls: list[tuple[list[str], Sampling, int]] = field(default_factory=list)
    world: World = field(default_factory=World)
    max_length: int | None = None
    in_flight: bool = False
    pausable: bool = False
    retries: int = 0

    @property
    def chat(self) -> ChatFormat:
        return ChatFormat(self.tokenizer)

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, *, ready: Ready | None = None, **_: Any
    ) -> list[Completion]:
        texts = [str(self.tokenizer.decode(list(prompt))) for prompt in prompts]
        self.calls.append((texts, sampling, seed))
        drawn = [self.completion(self.rule(text)) for text in texts]
        limit = sampling.max_tokens
        return [Completion(whole.ids[:limit], whole.logprobs[:limit]) for whole in drawn]

    def completion(self, answer: str) -> Completion:
        ids: list[Any] = [*self.tokenizer(answer, add_special_tokens=False)["input_ids"], self.tokenizer.eos_token_id]
        return Completion(tuple(ids), tuple(-0.5 for _ in ids))


def player(task: Any, engine: ScriptedEngine, max_length: int | None = None) -> Player:
    engine.max_length = max_length
    return Player(task, engine, engine.chat)


def play(task: Any, sampler: ScriptedEngine, pairs: list[tuple[Example, Context]], seed: int = 0) -> list[Rollout]:
    rollouts, timing = player(task, sampler).play(pairs, SAMPLING, policy_step=7, seed=seed)
    assert timing.sampling >= 0
    assert timing.total == timing.sampling + timing.grading
    return rollouts


def wait_in_time(played: Coroutine[Any, Any, Any]) -> Any:
    """`wait_for` that fails where rollouts wait for each other forever, also if they catch that they are cancelled."""

    async def within() -> Any:
        playing = asyncio.ensure_future(played)
        ended, _ = await asyncio.wait({playing}, timeout=60)
        while not playing.done():
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)
        assert ended, "they do not end"
        return playing.result()

    return wait_for(within())
