"""TextGrad (Yuksekgonul et al. 2024, arXiv 2406.07496): a criticism of the text, then an edit that applies it.

Keeps: one text that is improved step by step. A minibatch is played under it; a criticism says what about the text made the
failures happen (the gradient); a second request applies the criticism to the text (the step); the new text is kept unless it
does worse on the same problems.

A text can be kept only with a score on all anchors, so a step that was not worse on the minibatch is scored on all of them,
and the search continues from it only if it is not worse there either.

Without a model: the criticism is up to three lines of the feedback on the failed attempts, those that are likely to be rules
(several attempts agree on them, or they quote none); the edit adds one or more of them.
"""

from __future__ import annotations

import random

from fastslow.fast.optimizers.lines import lines_of
from fastslow.fast.optimizers.steps import Steps, Trial
from fastslow.fast.reflection import ReflectionFailed, TextRequest
from fastslow.fast.reflection.lessons import shuffled
from fastslow.fast.reflection.prompt import fence_of, fenced, show_attempts

LONGEST_CRITICISM = 1024
"""Tokens."""
CRITICISM_LINES = 3


class TextGrad(Steps):
    supports = frozenset({"reuse"})
    trials = 2

    def step(self) -> None:
        batch = self.minibatch()
        (before,) = self.try_out([(self.current, batch)])
        if not before.failed or (criticism := self.ask(self._gradient(before))) is None:
            return
        child = self.write([self.current], self._edit(criticism), before)
        if child is None:
            return
        (after,) = self.try_out([(child, batch)])
        if after.mean < before.mean:
            self.edits[child.id].reason = f"{after.mean:.2f} on the minibatch is worse than {before.mean:.2f}"
            return
        (member,) = self.score([child])
        if member.mean >= self.members[self.current.id].mean:
            self.current = child

    def _gradient(self, trial: Trial) -> TextRequest:
        text = self.text(trial.context)
        fence = fence_of([text])
        prompt = f"""\
A language model works under these instructions:
{fenced(text, fence)}

These of its attempts went wrong.

{show_attempts(trial.failed)}

Criticise the instructions, not the attempts: what in them, or missing from them, led to these failures, and how must they
change so that problems of this kind come out right? Do not write the new instructions."""

        def by_hand(chance: random.Random) -> list[str]:
            lessons = list(shuffled(self.lessons(text, trial.failed), chance))
            if not lessons:
                raise ReflectionFailed("nothing to criticise: no feedback has a usable line that the text lacks")
            return lessons[:CRITICISM_LINES]

        return self.text_request("the criticism", prompt, fence, by_hand, LONGEST_CRITICISM)

    def _edit(self, criticism: str) -> TextRequest:
        text, new = self.text(self.current), criticism.splitlines()
        fence = fence_of([text, criticism])
        prompt = f"""\
These are the instructions of a language model:
{fenced(text, fence)}

This is a criticism of them:
{fenced(criticism, fence)}

Rewrite the instructions so that the criticism no longer holds, and leave alone what it does not touch. Write general rules:
the next problems will be different ones."""

        def by_hand(chance: random.Random) -> list[str]:
            return [*lines_of(text), *new[: chance.randint(1, len(new))]]

        return self.text_request("the whole new instructions", prompt, fence, by_hand, kept=new)
