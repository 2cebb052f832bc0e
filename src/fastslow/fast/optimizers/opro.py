"""OPRO (Yang et al. 2023, arXiv 2309.03409): the proposer reads the history of texts and scores.

Keeps: the best texts so far with their scores, worst first, a few problems, and the request for a text that scores higher;
several proposals per step (`fast.optimizer.proposals`), each scored on all anchors. It learns from scores alone.

Leaves out: scores of earlier policies, so the history starts with each cycle's re-scored population; gold answers, which are
replaced by attempts that scored 1; the choice of where in the prompt the text goes.

Without a model: a text is drawn from the history, better ones more often, and one line of it is added, exchanged, dropped or
moved, where new lines come from the other texts of the history by their scores, from problems, solved or not, and from
generic advice.
"""

from __future__ import annotations

import random

from fastslow.fast.optimizers.lines import lines_of, vary
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.reflection import TextRequest
from fastslow.fast.reflection.prompt import closing, fence_of, fenced, show_demonstrations

HISTORY = 20
"""Texts that the proposer sees."""


class Opro(Steps):
    reads_feedback = False

    @property
    def price(self) -> int:
        return self.score_price

    def step(self) -> None:
        best = self.ranked()[0].context
        children = []
        for _ in range(min(self.recipe.optimizer.proposals, self.left // self.score_price)):
            child = self.write([best], self._better())
            if child is None:
                break
            children.append(child)
        self.score(children)

    def _better(self) -> TextRequest:
        history = self.ranked()[:HISTORY][::-1]
        texts = [member.context.texts[self.component] for member in history]
        solved, questions = self.demonstrations()
        fence = fence_of(texts)
        shown = "\n\n".join(
            f"Score {100 * member.mean:.0f}:\n{fenced(text, fence)}"
            for member, text in zip(history, texts, strict=True)
        )
        prompt = f"""\
These are instructions for a language model with the scores, from 0 to 100, that it reached under them. The best come last.

{shown}

These are problems that it is given.

{show_demonstrations(solved, questions)}

Write an instruction that differs from all of the above and scores higher than any of them.
{closing("the instruction", fence, self.recipe.max_tokens)}
"""
        lines = {**self.plain_lines(solved, questions), **self.population_lines(history)}

        def by_hand(chance: random.Random) -> list[str]:
            (text,) = chance.choices(texts, [rank + 1 for rank in range(len(texts))])
            return vary(lines_of(text), lines, chance)

        return self.text_request(prompt, by_hand, fence)
