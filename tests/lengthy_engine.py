"""An engine of pure Python whose answers are short or long; one number, which it learns, says how often."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fake_engine import END, FakeEngine, Numbered

from fastslow.engine.base import Numbers, Update
from fastslow.records import Completion, Enough, Example, Feedback, Ready, Sampling

LEAST, LIKELY_END = {"long": 10, "short": 1}, {"long": 0.3, "short": 0.6}
"""How many words an answer of a kind has at least, and how likely each further word is the last."""


class LongIsRight(Numbered):
    """Right is what begins with `long`."""

    def grade(self, example: Example, answer: str) -> Feedback:
        right = answer.startswith("long")
        return Feedback(float(right), "" if right else "say long")


class LengthyEngine(FakeEngine):
    """A policy with one weight, the logit of beginning an answer with `long`; REINFORCE with importance ratios trains it."""

    pausable = True

    def __init__(self, weight: float = 0.0, rate: float = 0.0) -> None:
        super().__init__()
        self.weight, self.rate = weight, rate
        self.decoded: list[int] = []
        """Decoding steps of every call."""
        self.tokens = 0
        self.ids = {word: self.tokenizer(word)["input_ids"][0] for word in ("long", "short", "and")}

    async def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seed: int,
        *,
        limits: Sequence[int] | None = None,
        enough: Enough | None = None,
        ready: Ready | None = None,
    ) -> list[Completion]:
        most = limits or [sampling.max_tokens] * len(prompts)
        self.events.append(("sample", [self.tokenizer.decode(prompt) for prompt in prompts]))
        draws = [random.Random(f"{seed} {row}") for row in range(len(prompts))]
        drawn: list[list[tuple[int, float]]] = [[] for _ in prompts]
        left, steps = list(range(len(prompts))), 0
        while left:
            for row in left:
                drawn[row].append(self._token([*prompts[row], *(token for token, _ in drawn[row])], draws[row]))
            steps, before = steps + 1, len(left)
            left = [row for row in left if drawn[row][-1][0] != END and len(drawn[row]) < most[row]]
            if enough and len(left) < before and enough(left):
                break
        self.decoded.append(steps)
        self.tokens += sum(map(len, drawn))
        return [
            Completion(tuple(t for t, _ in each), tuple(p for _, p in each), ended=row not in left)
            for row, each in enumerate(drawn)
        ]

    def _token(self, tokens: Sequence[int], draw: random.Random) -> tuple[int, float]:
        """A token after these, and its log-probability."""
        kinds = {self.ids["long"]: "long", self.ids["short"]: "short"}
        begun = next((place for place in reversed(range(len(tokens))) if tokens[place] in kinds), None)
        known = set(self.ids.values())
        if begun is None or any(token not in known for token in tokens[begun:]):
            chance, words = self.long, (self.ids["long"], self.ids["short"])
        else:
            kind, length = kinds[tokens[begun]], len(tokens) - begun
            chance = LIKELY_END[kind] if length >= LEAST[kind] else 0.0
            words = (END, self.ids["and"])
        first = draw.random() < chance
        return words[0] if first else words[1], math.log(chance if first else 1 - chance)

    @property
    def long(self) -> float:
        return 1 / (1 + math.exp(-self.weight))

    def update(self, update: Update) -> Numbers:
        gradient = 0.0
        for row in update.rows:
            chose_long = row.turn.completion.ids[0] == self.ids["long"]
            now = math.log(self.long if chose_long else 1 - self.long)
            ratio = min(math.exp(now - row.turn.completion.logprobs[0]), 4.0)
            gradient += ratio * row.advantage * (chose_long - self.long) / len(row.turn.completion.ids)
        self.weight += self.rate * gradient / max(len(update.rows), 1)
        return super().update(update)

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        super().save(folder, teacher=teacher)
        (folder / "weight.json").write_text(json.dumps(self.weight))

    def prepare(self, checkpoint: Path | None = None) -> None:
        super().prepare(checkpoint)
        if checkpoint is not None:
            self.weight = json.loads((checkpoint / "weight.json").read_text())


def updates_of(engine: FakeEngine) -> list[Any]:
    return [what for kind, what in engine.events if kind == "update"]
