"""In the manner of APE (Zhou et al. 2022, arXiv 2211.01910): instructions are guessed from demonstrations, then resampled.

Keeps: candidates induced from pairs of problem and right answer; a screening of all of them on a few problems, after which
only the best are scored in full; then rounds of candidates that say the same as the best so far in other words. Scores are
all it learns from.

Leaves out: the likelihood score and the insertion mode, which need a model's logits; gold answers, which a task does not
give: a demonstration is an attempt that got full marks in this cycle, and where there is none only problems are shown.

Without a model: an induced instruction is the first line of the best text with demonstrations, lines of problems or generic
advice below it; other words for a text are the same lines with one moved, dropped, added or exchanged.
"""

from __future__ import annotations

import random

from fastslow.fast.optimizers.lines import lines_of, vary
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.reflection import Wish
from fastslow.fast.reflection.lessons import shuffled
from fastslow.fast.reflection.prompt import closing, fence_of, fenced, show_demonstrations
from fastslow.records import Context

WIDTH = 8
"""Candidates of a round."""
KEPT = 2
"""Those of them that are scored in full."""
INDUCED_LINES = 3
"""Most lines that an instruction induced by hand has beside its first."""


class Ape(Steps):
    reads_feedback = False

    @property
    def price(self) -> int:
        return self.trial_price + self.score_price

    def step(self) -> None:
        best = self.ranked()[0].context
        first = self.generations <= len(self.components)
        children: list[Context] = []
        for _ in range(min(WIDTH, (self.left - self.score_price) // self.trial_price)):
            child = self.write([best], self._induced(best) if first else self._resampled(best))
            if child is None:
                break
            children.append(child)
        if not children:
            return
        batch = self.minibatch()
        trials = sorted(self.try_out([(child, batch) for child in children]), key=lambda trial: -trial.mean)
        kept = min(KEPT, self.left // self.score_price)
        for trial in trials[kept:]:
            self.edits[trial.context.id].reason = f"{trial.mean:.2f} on the minibatch is not among the best {kept}"
        self.score([trial.context for trial in trials[:kept]])

    def _induced(self, best: Context) -> Wish:
        solved, questions = self.demonstrations()
        text = best.texts[self.component]
        fence = fence_of([text])
        prompt = f"""\
A colleague was given an instruction and these problems to solve with it.

{show_demonstrations(solved, questions)}

What was the instruction? Write the one that makes a language model give such answers to any problem of this kind.
{closing("the instruction", fence, self.recipe.max_tokens)}
"""

        def by_hand(chance: random.Random) -> list[str]:
            lines = list(shuffled(self.plain_lines(solved, questions), chance))
            return [*lines_of(text)[:1], *lines[: chance.randint(1, INDUCED_LINES)]]

        return self.wish(prompt, by_hand, fence)

    def _resampled(self, best: Context) -> Wish:
        solved, questions = self.demonstrations()
        text = best.texts[self.component]
        fence = fence_of([text])
        prompt = f"""\
Write a variation of this instruction that means the same and says it differently.
{fenced(text, fence)}
{closing("the variation", fence, self.recipe.max_tokens)}
"""
        lines = self.plain_lines(solved, questions)
        return self.wish(prompt, lambda chance: vary(lines_of(text), lines, chance), fence)
