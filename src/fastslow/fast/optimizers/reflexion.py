"""Reflexion (Shinn et al. 2023, arXiv 2303.11366): lessons from failures, each kept for its problem.

Keeps: a memory of lessons per problem, each written from a single failed attempt and its feedback, and a second try at the
same problem with its own lessons in the context (the last three, as in the original).

Leaves out: more than one retry in a row; memories of what happened beside the lessons. The original retries the same
problems, while here only new ones count. We decided what these are shown: the text that the memory began with, and below it
the most recent lessons that helped their own problem on its second try, as many as fit. That context is scored and trained
under; lessons that did not help stay in the memory of their problem. The memory is carried from cycle to cycle with the
contexts, and dropped with them.

Without a model: a lesson is one line of the feedback on the attempt.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastslow.fast.optimizers.lines import distinct, lines_of
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.pool import is_more
from fastslow.fast.reflection import Attempt, ReflectionFailed, TextRequest
from fastslow.fast.reflection.lessons import fit, line_key, shuffled
from fastslow.fast.reflection.prompt import closing, fence_of, fenced, show_attempts
from fastslow.records import Context

OWN = 3
"""Lessons of its own that a problem's second try is shown."""
MEMORY = 256
"""Lessons of all problems together."""
LONGEST_LESSON = 256
"""Tokens."""


@dataclass(frozen=True)
class Lesson:
    """What a failed attempt at a problem taught."""

    problem: str
    component: str
    text: str
    helped: bool = False


class Reflexion(Steps):
    supports = frozenset({"reuse"})

    @property
    def price(self) -> int:
        return 2 * self.trial_price + self.score_price

    def search(self) -> None:
        self.current = self.ranked()[0].context
        notes = self.notes.get(self.current.id) or {"base": dict(self.current.texts), "memory": []}
        self.base: Mapping[str, str] = notes["base"]
        self.memory = [Lesson(**each) for each in notes["memory"]]
        super().search()

    def step(self) -> None:
        batch = {example.id: example for example in self.minibatch()}
        (trial,) = self.try_out([(self.current, list(batch.values()))])
        failed = {problem: attempt for problem, attempt in trial.attempts.items() if attempt.score < 1}
        texts = {problem: self._lesson(problem, attempt) for problem, attempt in failed.items()}
        lessons = [Lesson(problem, self.component, text) for problem, text in texts.items() if text]
        if not lessons:
            return
        self.failures_in_a_row = 0
        tries = self.try_out([(self._second_try(lesson), [batch[lesson.problem]]) for lesson in lessons])
        for lesson, second in zip(lessons, tries, strict=True):
            gain = second.scores[lesson.problem] - trial.scores[lesson.problem]
            self._keep(replace(lesson, helped=is_more(gain, 0)))
        text = self._shown([each.text for each in self.memory if each.helped and each.component == self.component])
        if text == self.current.texts[self.component]:
            return
        feedback = [failed[lesson.problem].feedback for lesson in lessons]
        child = self.offer([self.current], self.component, text, feedback, trial.mean)
        if child is not None:
            self.notes[child.id] = self._notes()
            self.score([child])
            self.current = child

    def _keep(self, lesson: Lesson) -> None:
        """Add a lesson to the memory; the oldest of the problem, and then of all, are dropped."""
        place = (lesson.problem, lesson.component)
        own = [each for each in self.memory if (each.problem, each.component) == place]
        forgotten = own[: max(0, len(own) + 1 - OWN)]
        self.memory = [*(each for each in self.memory if each not in forgotten), lesson][-MEMORY:]

    def _notes(self) -> dict[str, Any]:
        return {"base": dict(self.base), "memory": [asdict(lesson) for lesson in self.memory]}

    def _own(self, problem: str) -> list[str]:
        return [each.text for each in self.memory if (each.problem, each.component) == (problem, self.component)]

    def _second_try(self, lesson: Lesson) -> Context:
        """The context of one problem's second try, with its own lessons; it is not a candidate."""
        own = [*self._own(lesson.problem), lesson.text][-OWN:]
        return Context({**self.base, self.component: self._shown(own)}, (self.current.id,), self.cycle)

    def _shown(self, lessons: Sequence[str]) -> str:
        """The base text and the lessons below it, without the oldest where they do not all fit."""
        base = lines_of(self.base[self.component])
        recent = distinct(reversed([line for lesson in lessons for line in lines_of(lesson)]))[::-1]
        text = fit([*base, *recent], base, self.count_tokens, self.recipe.max_tokens)
        return "\n".join(base) if text is None else text

    def _lesson(self, problem: str, attempt: Attempt) -> str | None:
        text, own = self.base[self.component], self._own(problem)
        fence = fence_of([text])
        earlier = "\n".join(own[-OWN:]) or "(none yet)"
        prompt = f"""\
A language model works under these instructions:
{fenced(text, fence)}

It failed at a problem.

{show_attempts([attempt])}

Lessons from earlier failures at the same problem:
{earlier}

In one or two sentences to the model itself: what went wrong, and what should it do the next time it sees such a problem?
{closing("the lesson", fence, LONGEST_LESSON)}
"""

        def by_hand(chance: random.Random) -> str:
            known = {line_key(lesson) for lesson in own}
            new = {
                line: weight for line, weight in self.lessons(text, [attempt]).items() if line_key(line) not in known
            }
            if not new and not own:
                raise ReflectionFailed("nothing to learn: the feedback has no usable line that the text lacks")
            return next(shuffled(new, chance)) if new else own[-1]

        request = TextRequest(prompt, by_hand, LONGEST_LESSON, self.count_tokens, fence)
        return self.asked(lambda seed: self.reflector.write(request, seed))
