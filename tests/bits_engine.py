"""An engine of pure Python that answers with bits, each with a chance of its own that REINFORCE trains; and tasks of bits."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fake_engine import END, FakeEngine, Numbered

from fastslow.engine.base import Numbers, Update
from fastslow.records import Completion, Example, Feedback, Sampling

FAULTS = ("Put the answer into a box.", "The carry of the sum is missing.", "Name the unit of the length.")


class AllRight(Numbered):
    """Right is an answer whose bits are all 1; the grader names every bit that is not."""

    def grade(self, example: Example, answer: str) -> Feedback:
        missing = [fault for bit, fault in zip(answer.split(), FAULTS, strict=True) if bit == "0"]
        return Feedback(float(not missing), "\n".join(missing))


class Lies(AllRight):
    """As above, but what the grader says has nothing to do with the answer; half of the answers with two bits score."""

    def grade(self, example: Example, answer: str) -> Feedback:
        draw = random.Random(f"{example.id} {answer}")
        said = draw.sample(FAULTS, draw.choice([1, 2, 3]))
        return Feedback(float(answer.startswith("1")), "\n".join(said))


class BitsEngine(FakeEngine):
    def __init__(self, chance: float = 0.1, rate: float = 1.0) -> None:
        super().__init__()
        self.logits, self.rate = [math.log(chance / (1 - chance))] * len(FAULTS), rate
        self.ids = [self.tokenizer(bit)["input_ids"][0] for bit in "01"]

    @property
    def chances(self) -> list[float]:
        return [1 / (1 + math.exp(-logit)) for logit in self.logits]

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, **_: Any
    ) -> list[Completion]:
        found = []
        for row in range(len(prompts)):
            draw = random.Random(f"{seed} {row}")
            bits = [draw.random() < chance for chance in self.chances]
            logprobs = [math.log(p if bit else 1 - p) for bit, p in zip(bits, self.chances, strict=True)]
            found.append(Completion((*(self.ids[bit] for bit in bits), END), (*logprobs, 0.0)))
        return found

    def update(self, update: Update) -> Numbers:
        super().update(update)
        tokens = sum(len(row.turn.completion.ids) for row in update.rows)
        chances = self.chances
        for row in update.rows:
            for place, chance in enumerate(chances):
                bit = row.turn.completion.ids[place] == self.ids[1]
                self.logits[place] += self.rate * row.advantage * row.scale * (bit - chance) / tokens
        return {"loss": 0.0, "grad_norm": 1.0, "learning_rate": self.rate}

    def prepare(self, checkpoint: Path | None = None) -> None:
        super().prepare(checkpoint)
        if checkpoint is not None:
            self.logits = json.loads((checkpoint / "bits.json").read_text())

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        super().save(folder, teacher=teacher)
        (folder / "bits.json").write_text(json.dumps(self.logits))
