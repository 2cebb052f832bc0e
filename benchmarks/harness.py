"""What a harness costs beside a plain ask: `python -m benchmarks.harness [--rollouts 1000] [--at-once 256]`.

An engine without a model answers at once, so that all time is the player's, the channel's and the sandbox's. Both ways are
timed in one run, in turn, on the same problems: one plain question, and a harness that asks it once. Then many harnesses in
play at the same time, and some of them that hang, crash or eat memory beside others that must not notice.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from fastslow.base.world import World
from fastslow.models.chat import ChatFormat
from fastslow.records import Completion, Context, Example, Feedback, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.base import Message, Options, QuestionTask, Split, Task
from fastslow.tasks.harness import HARNESS, SEED_CODE, HarnessTask, Limits

ROUNDS = 5
BAD = {
    "hangs": "def solve(problem, ask, tools):\n    while True: pass\n",
    "crashes": "def solve(problem, ask, tools):\n    return ask('x')[10**9]\n",
    "eats memory": "def solve(problem, ask, tools):\n    hoard = []\n    while True: hoard.append(bytes(2**24))\n",
    "floods its channel": "import os\ndef solve(problem, ask, tools):\n    while True: os.write(3, bytes(2**16))\n",
}


class Letters:
    """A tokenizer whose tokens are the letters of a text."""

    chat_template, bos_token_id, all_special_ids = "letters", None, (0,)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [1 + ord(letter) for letter in text]}

    def apply_chat_template(self, messages: Sequence[Message], tokenize: bool = True, **_: Any) -> Any:
        text = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
        return self(text) if tokenize else text

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(chr(token - 1) for token in ids if token)


class Quick:
    """Answers at once."""

    in_flight, pausable, max_length, retries = False, False, None, 0

    def __init__(self) -> None:
        self.tokenizer, self.world = Letters(), World()

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, **_: Any
    ) -> list[Completion]:
        draw = random.Random(seed)
        return [Completion((1 + draw.randrange(97, 123), 0), (-1.0, -0.1)) for _ in prompts]


def examples(split: Split) -> list[Example]:
    return [Example(f"{split}-{number}", {"question": f"question {number}"}) for number in range(1000)]


class Plain(QuestionTask):
    def examples(self, split: Split) -> list[Example]:
        return examples(split)

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": example.data["question"]}]

    def grade(self, example: Example, answer: str) -> Feedback:
        return Feedback(1.0)


class Harnessed(HarnessTask):
    def examples(self, split: Split) -> list[Example]:
        return examples(split)

    def problem(self, example: Example) -> Any:
        return dict(example.data)

    def grade(self, example: Example, answer: str) -> Feedback:
        return Feedback(1.0)


def play(task: Task, count: int, codes: Sequence[str] = (SEED_CODE,)) -> tuple[float, list[Rollout]]:
    """Seconds, and the rollouts, all at once; the codes take turns."""
    engine = Quick()
    player = Player(task, engine, ChatFormat(engine.tokenizer))  # type: ignore[arg-type]
    contexts = [Context({"system": "Answer.", HARNESS: code}) for code in codes]
    pairs = [(task.examples("train")[n % 1000], contexts[n % len(contexts)]) for n in range(count)]
    started = time.perf_counter()
    rollouts = player.play(pairs, Sampling(max_tokens=4), policy_step=0, seed=1, strict=False)[0]
    return time.perf_counter() - started, rollouts


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--rollouts", type=int, default=1000)
    reading.add_argument("--at-once", type=int, default=256)
    chosen = reading.parse_args()
    harnessed, plain = Harnessed(), Plain(Options())
    started = time.perf_counter()
    play(harnessed, 1)
    print(f"the first harness, with the process that forks: {time.perf_counter() - started:.2f} s")
    times: dict[str, list[float]] = {"plain": [], "harness": []}
    for _ in range(ROUNDS):
        times["plain"].append(play(plain, chosen.rollouts // ROUNDS)[0])
        times["harness"].append(play(harnessed, chosen.rollouts // ROUNDS)[0])
    each = {name: 1000 * median(found) * ROUNDS / chosen.rollouts for name, found in times.items()}
    print(
        f"{chosen.rollouts} rollouts: {each['plain']:.2f} ms for a plain ask, {each['harness']:.2f} ms for one by a "
        f"harness, {each['harness'] / each['plain']:.0f} times as much, on {os.cpu_count()} processors"
    )
    seconds, rollouts = play(harnessed, chosen.at_once)
    print(
        f"{chosen.at_once} at once: {seconds:.1f} s, mean score {sum(each.score for each in rollouts) / len(rollouts):g}"
    )
    harnessed.limits = Limits(seconds=2)
    seconds, rollouts = play(harnessed, chosen.at_once, [SEED_CODE] * 12 + list(BAD.values()))
    good = [each for each in rollouts if each.context.texts[HARNESS] == SEED_CODE]
    counted = Counter(fault for each in rollouts for fault in each.faults)
    lost = sum(each.score < 1 for each in good)
    print(
        f"a quarter of {chosen.at_once} misbehaving: {seconds:.1f} s, {dict(counted)}; of {len(good)} others {lost} were lost"
    )
    sys.exit(lost > 0)


if __name__ == "__main__":
    main()
