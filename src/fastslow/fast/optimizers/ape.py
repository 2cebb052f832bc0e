"""APE (Zhou et al. 2022, arXiv 2211.01910): instructions are induced from demonstrations, then resampled.

Keeps: candidates induced from pairs of problem and right answer; a minibatch that screens all of them, after which only the
best are scored on all anchors; then rounds of candidates that reword the best so far. It learns from scores alone.

A demonstration is an attempt of this cycle that scored 1; without any, only problems are shown.

Without a model: an induced instruction is the first line of the best text with demonstrations, lines of problems or generic
advice below it; a rewording has one line moved, dropped, added or exchanged.
"""

from __future__ import annotations

import random

from fastslow.fast.optimizers.lines import lines_of, plain_lines, varied
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.reflection.lessons import shuffled
from fastslow.fast.reflection.prompt import fence_of, fenced, show_demonstrations
from fastslow.records import Context

WIDTH = 8
"""Candidates of a round."""
KEPT = 2
"""Candidates of a round that are scored on all anchors."""
INDUCED_LINES = 3
"""The most lines after the first in an instruction induced without a model."""


class Ape(Steps):
    reads_feedback = False
    trials = 1

    def step(self) -> None:
        children = self.brood(min(WIDTH, (self.left - self.score_price) // self.trial_price))
        if not children:
            return
        batch = self.minibatch()
        trials = sorted(self.try_out([(child, batch) for child in children]), key=lambda trial: -trial.mean)
        kept = min(KEPT, self.left // self.score_price)
        for trial in trials[kept:]:
            self.edits[trial.context.id].reason = f"{trial.mean:.2f} on the minibatch is not among the best {kept}"
        self.score([trial.context for trial in trials[:kept]])

    def propose(self) -> Context | None:
        best = self.ranked()[0].context
        text, (solved, questions) = self.text(best), self.demonstrations()
        lines, fence = plain_lines(solved, questions), fence_of([text])

        def induced(chance: random.Random) -> list[str]:
            new = list(shuffled(lines, chance))
            return [*lines_of(text)[:1], *new[: chance.randint(1, INDUCED_LINES)]]

        if self.generations <= len(self.components):
            prompt = f"""\
A colleague was given an instruction and these problems to solve with it.

{show_demonstrations(solved, questions)}

What was the instruction? Write the one that makes a language model give such answers to any problem of this kind."""
            return self.write([best], self.text_request("the instruction", prompt, fence, induced))
        prompt = f"""\
Write a variation of this instruction that means the same and says it differently.
{fenced(text, fence)}"""
        return self.write([best], self.text_request("the variation", prompt, fence, varied(text, lines)))
