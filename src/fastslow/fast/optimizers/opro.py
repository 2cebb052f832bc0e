"""OPRO (Yang et al. 2023, arXiv 2309.03409): the proposer reads the history of texts and scores.

Keeps: the best texts so far with their scores, worst first, a few problems, and the request for a text that scores higher;
several proposals per step (`fast.optimizer.proposals`), each scored on all anchors. It learns from scores alone.

The history starts with each cycle's re-scored population.

Without a model: a text is drawn from the history, better ones more often, and one line of it is added, exchanged, dropped or
moved, where new lines come from the other texts of the history by their scores, from problems, solved or not, and from
generic advice.
"""

from __future__ import annotations

import random

from pydantic import Field

from fastslow.fast.optimizers.lines import lines_of, plain_lines, vary
from fastslow.fast.optimizers.steps import Steps, listed
from fastslow.fast.reflection.prompt import fence_of, show_demonstrations
from fastslow.recipe import Part
from fastslow.records import Context

HISTORY = 20
"""Texts that the proposer sees."""


class OproOptions(Part):
    proposals: int = Field(default=1, ge=1)
    """Texts proposed per step."""


class Opro(Steps):
    Options = OproOptions
    reads_feedback = False

    def step(self) -> None:
        self.score(self.brood(min(self.recipe.optimizer.proposals, self.left // self.score_price)))

    def propose(self) -> Context | None:
        history = self.ranked()[:HISTORY][::-1]
        texts, (solved, questions) = [self.text(each.context) for each in history], self.demonstrations()
        fence = fence_of(texts)
        scores = [f"Score {100 * each.mean:.0f}:" for each in history]
        prompt = f"""\
These are instructions for a language model with the scores, from 0 to 100, that it reached under them. The best come last.

{listed(scores, texts, fence)}

These are problems that it is given.

{show_demonstrations(solved, questions)}

Write an instruction that differs from all of the above and scores higher than any of them."""
        lines = {**plain_lines(solved, questions), **self.population_lines(history)}

        def by_hand(chance: random.Random) -> list[str]:
            (text,) = chance.choices(texts, range(1, len(texts) + 1))
            return vary(lines_of(text), lines, chance)

        return self.write([history[-1].context], self.text_request("the instruction", prompt, fence, by_hand))
