"""An engine of pure Python: a policy that knows one number, for tests of what the loop does and in which order."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastslow.base.world import World
from fastslow.engine.base import Numbers, TokenScores, Update
from fastslow.records import Completion, Example, Feedback, Ready, Sampling, Turn
from fastslow.tasks.base import Message, Options, QuestionTask, Split

END = 0


class Words:
    """A tokenizer whose tokens are words, with the same numbers in every process."""

    chat_template = "words"
    bos_token_id = None
    all_special_ids = (END,)

    def __init__(self) -> None:
        self.words = {END: "<end>"}

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        ids = {word: 1 + (zlib.crc32(word.encode(errors="surrogatepass")) & 0xFFFFFFF) for word in text.split()}
        self.words |= {number: word for word, number in ids.items()}
        return {"input_ids": [ids[word] for word in text.split()]}

    def apply_chat_template(self, messages: Sequence[Message], tokenize: bool = True, **_: Any) -> Any:
        text = " ".join(f"<{message['role']}> {message['content']}" for message in messages)
        return self(text) if tokenize else text

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return " ".join(self.words.get(token, "?") for token in ids if token != END)


class Numbered(QuestionTask):
    """Right is the word `yes`. The grader always says the same useful sentence."""

    seed_text = "answer"

    def __init__(self, problems: int = 100) -> None:
        super().__init__(Options())
        self.problems = problems

    def examples(self, split: Split) -> list[Example]:
        return [Example(f"{split}-{number}", {"number": number}) for number in range(self.problems)]

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": f"question {example.id}"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        right = answer == "yes"
        return Feedback(float(right), "" if right else f"say yes\nwrite it in lower case\nthink of {example.id}")


class FakeEngine:
    """Says `yes` with a chance that grows with its updates and with the text it reads; writes everything down."""

    in_flight = pausable = False
    retries = 0
    notes: Mapping[str, Any] = {}

    def __init__(self, chance: float = 0.3) -> None:
        self.tokenizer, self.world = Words(), World()
        self.max_length: int | None = None
        self.skill, self.chance = 0.0, chance
        self.events: list[tuple[str, Any]] = []
        """What was asked of the engine, in order: sampled prompts (as text), updates, checkpoints."""
        self.fails_at: int | None = None
        self.diverges: dict[int, dict[str, float]] = {}
        """Other numbers of an update, by its step."""

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, *, ready: Ready | None = None, **_: Any
    ) -> list[Completion]:
        texts = [self.tokenizer.decode(prompt) for prompt in prompts]
        self.events.append(("sample", texts))
        return [self._completion(text, random.Random(f"{seed} {row}")) for row, text in enumerate(texts)]

    def _completion(self, text: str, draw: random.Random) -> Completion:
        right = draw.random() < self.chance + self.skill + (0.3 if "say yes" in text else 0.0)
        ids = (*self.tokenizer("yes" if right else "no")["input_ids"], END)
        return Completion(ids, (-0.5,) * len(ids))

    def prepare(self, checkpoint: Path | None = None) -> None:
        self.events.append(("prepare", checkpoint and checkpoint.name))
        if checkpoint is not None:
            self.skill = json.loads((checkpoint / "engine.json").read_text())["skill"]

    def update(self, update: Update) -> Numbers:
        if update.step == self.fails_at:
            raise RuntimeError("the power is out")
        self.events.append(("update", update))
        self.skill += 1e-3 * len(update.rows)
        return {"loss": 0.0, "grad_norm": 1.0, "learning_rate": 1e-3, **self.diverges.get(update.step, {})}

    def score(self, turns: Sequence[Turn]) -> list[TokenScores]:
        return [TokenScores((-1.0,), (-1.5,), None) for _ in turns]

    def freeze_teacher(self) -> None:
        self.events.append(("teacher", self.skill))

    def load(self, checkpoint: Path) -> None:
        raise AssertionError("a run prepares, it does not load")

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        self.events.append(("save", teacher))
        (folder / "engine.json").write_text(json.dumps({"skill": self.skill}))

    def close(self) -> None:
        self.events.append(("close", None))
