"""What the address in front of agents does and costs: `python -m benchmarks.gateway [--turns 10000] [--agents 1000]`.

An engine without a model answers with random tokens at once, so that all time is the gateway's, the player's and the agents'.
Agents are async functions that go on, retry, compact, branch off, call tools and ask for two answers, in random order.

1. Exactness: every prompt of a conversation that was repeated must begin with the exact tokens of the turn that it repeats,
   and the tokens of all turns must be those that the engine sampled, each once.
2. Agents at once: all of them wait for their first answers at the same time.
3. Overhead: seconds a turn through the address, and by asking the engine directly.
4. Memory: the resident set after each tenth of the turns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import resource
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from fastslow.base.world import World
from fastslow.models.chat import ChatFormat
from fastslow.models.tokenizer import read_tokenizer, resolve
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.adapters.agent import AgentOptions, AgentTask
from fastslow.tasks.base import Ask, Options, Task

TURNS = 10
"""Requests of one agent."""
TOOL = {"type": "function", "function": {"name": "look", "description": "looks", "parameters": {}}}
TOGETHER: dict[str, Any] = {}
"""Where agents wait for each other, if they do."""


class RandomEngine:
    """Answers at once with random tokens, and counts them."""

    in_flight, pausable, max_length, retries = True, False, None, 0

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.world = tokenizer, World()
        self.sampled: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
        special = set(tokenizer.all_special_ids)
        self.words = [token for token in range(len(tokenizer)) if token not in special]
        call = '<tool_call>{"name": "look", "arguments": {"at": "sea"}}</tool_call>'
        self.call = list(tokenizer(call, add_special_tokens=False)["input_ids"])

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, **_: Any
    ) -> list[Completion]:
        draw = random.Random(seed)
        drawn = []
        for prompt in prompts:
            ids = draw.choices(self.words, k=draw.randrange(1, 12)) + (self.call if draw.random() < 0.2 else [])
            ids += [self.tokenizer.eos_token_id] if draw.random() < 0.9 else []
            self.sampled[tuple(prompt), tuple(ids)] += 1
            drawn.append(Completion(tuple(ids), (-1.0,) * len(ids)))
        return drawn


async def agent(problem: dict[str, Any], base_url: str, api_key: str) -> Feedback:
    """A random conversation; the feedback says which turn each turn repeats."""
    draw, known, parents = random.Random(problem["seed"]), [], []
    head = {"authorization": f"Bearer {api_key}"}
    async with aiohttp.ClientSession(headers=head) as http:
        if TOGETHER:
            TOGETHER["barrier"].wait()  # it has a thread of its own
        for number in range(problem["turns"]):
            parent, messages, tools = (
                draw.choice(known) if known and draw.random() < 0.85 else (-1, [], draw.random() < 0.5)
            )
            calls = (messages[-1].get("tool_calls") or []) if messages else []
            new = [{"role": "tool", "tool_call_id": call["id"], "content": "sea"} for call in calls]
            asked = [*messages, *(new or [{"role": "user", "content": f"question {number}"}])]
            if parent >= 0 and draw.random() < 0.15:  # compaction
                parent, asked = -1, [{"role": "user", "content": f"so far {number}"}, *asked[-1:]]
                asked = [each for each in asked if each["role"] == "user"]
            count = 2 if draw.random() < 0.1 else 1
            body = {"model": "policy", "messages": asked, "n": count, **({"tools": [TOOL]} if tools else {})}
            async with http.post(f"{base_url}/chat/completions", json=body) as response:
                response.raise_for_status()
                choices = (await response.json())["choices"]
            for choice in choices:
                known.append((len(parents), [*asked, choice["message"]], tools))
                parents.append(parent)
    return Feedback(1.0, json.dumps(parents))


class Direct(Task):
    """The same number of turns, asked for without an address."""

    seed_text = "be brief"

    def __init__(self, turns: int) -> None:
        super().__init__(Options())
        self.turns = turns

    def examples(self, split: str) -> Sequence[Example]:
        return []

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        messages = []
        for number in range(self.turns):
            messages.append({"role": "user", "content": f"question {number}"})
            messages.append({"role": "assistant", "content": (yield Ask("system", list(messages)))})
        return Feedback(1.0)


def make_task(rows: Sequence[dict[str, Any]], at_once: int) -> AgentTask:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.jsonl")
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        options = AgentOptions(
            path=str(file),
            holdout=0,
            agent="benchmarks.gateway:agent",
            components={"system": "be brief"},
            turns=1000,
            at_once=at_once,
            seconds=3600,
        )
        return AgentTask(options)


def play(task: Task, engine: RandomEngine, examples: Sequence[Example]) -> tuple[list[Rollout], float]:
    player = Player(task, engine, ChatFormat(engine.tokenizer))  # type: ignore[arg-type]
    started = time.perf_counter()
    pairs = [(example, Context({"system": "be brief"})) for example in examples]
    rollouts, _ = player.play(pairs, Sampling(max_tokens=64), policy_step=0, seed=0, strict=False)
    return rollouts, time.perf_counter() - started


def check(rollouts: Sequence[Rollout], engine: RandomEngine) -> dict[str, int]:
    """Turns, tokens that differ from those that were sampled, tokens trained twice, faults."""
    mismatches = 0
    for rollout in rollouts:
        parents = json.loads(rollout.feedback.text) if rollout.score else []
        for turn, parent in zip(rollout.turns, parents, strict=bool(parents)):
            if parent >= 0:
                before = rollout.turns[parent]
                kept = [*before.prompt_ids, *before.completion.ids]
                mismatches += list(turn.prompt_ids)[: len(kept)] != kept
    trained = Counter((turn.prompt_ids, turn.completion.ids) for rollout in rollouts for turn in rollout.turns)
    twice = sum((trained - engine.sampled).values())
    lost = sum((engine.sampled - trained).values())
    faults = sum((Counter(rollout.faults) for rollout in rollouts), Counter())
    turns = sum(len(rollout.turns) for rollout in rollouts)
    return {"turns": turns, "mismatches": mismatches, "trained twice": twice, "not trained": lost, **faults}


def resident() -> float:
    """Megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--agents", type=int, default=1_000)
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # both ends of every connection are in this process
    tokenizer = read_tokenizer(resolve("nano"), trust_remote_code=False)

    part = max(given.turns // 10 // TURNS, 1)
    total: Counter[str] = Counter()
    memory, seconds = [], 0.0
    for tenth in range(10):
        engine = RandomEngine(tokenizer)
        task = make_task([{"seed": tenth * part + place, "turns": TURNS} for place in range(part)], at_once=64)
        rollouts, took = play(task, engine, task.examples("train"))
        total += Counter(check(rollouts, engine))
        seconds += took
        memory.append(round(resident()))
    print(
        json.dumps(
            {name: total[name] for name in ("turns", "mismatches", "trained twice", "not trained")} | dict(total)
        )
    )
    turns = total["turns"]
    direct, took = play(Direct(TURNS), RandomEngine(tokenizer), [Example(str(n), {}) for n in range(part)])
    alone = took / sum(len(rollout.turns) for rollout in direct)
    print(f"a turn through the address: {1000 * seconds / turns:.2f} ms; asked directly: {1000 * alone:.2f} ms")
    print(f"resident megabytes after each tenth: {memory}")

    importlib.import_module("benchmarks.gateway").TOGETHER["barrier"] = threading.Barrier(given.agents)
    engine = RandomEngine(tokenizer)
    task = make_task([{"seed": place, "turns": 3} for place in range(given.agents)], at_once=given.agents)
    rollouts, took = play(task, engine, task.examples("train"))
    print(json.dumps({"agents at once": given.agents, "seconds": round(took, 1), **check(rollouts, engine)}))


if __name__ == "__main__":
    main()
