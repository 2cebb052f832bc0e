"""Reflexion (Shinn et al. 2023, arXiv 2303.11366): lessons from failures, each kept for its problem.

Keeps: a memory of lessons per problem, each written from a single failed attempt and its feedback, and a second try at the
same problem with its own lessons in the context (the last three, as in the original).

The original retries the same problems, while here only new ones count. These are shown the text that the memory began with,
and below it the most recent lessons that helped their own problem on its second try, as many as fit. That context is scored
and trained under; the memory is carried from cycle to cycle with the contexts, and dropped with them.

Without a model: a lesson is one line of the feedback on the attempt.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from fastslow.fast.optimizers.lines import distinct, lines_of
from fastslow.fast.optimizers.steps import Steps
from fastslow.fast.pool import is_more
from fastslow.fast.reflection import Attempt, ReflectionFailed
from fastslow.fast.reflection.lessons import fit, line_key, shuffled
from fastslow.fast.reflection.prompt import fence_of, fenced, show_attempts
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
    trials = 2

    def begin(self) -> None:
        notes = self.notes.get(self.current.id, {})
        self.base = notes.get("base") or dict(self.current.texts)
        self.memory = [Lesson(**each) for each in notes.get("memory", [])]

    def step(self) -> None:
        batch = {example.id: example for example in self.minibatch()}
        (trial,) = self.try_out([(self.current, list(batch.values()))])
        failed = {problem: attempt for problem, attempt in trial.attempts.items() if attempt.score < 1}
        texts = {problem: self._lesson(attempt, self._own(problem)) for problem, attempt in failed.items()}
        lessons = [Lesson(problem, self.component, text) for problem, text in texts.items() if text]
        if not lessons:
            return
        self.failures_in_a_row = 0
        tries = self.try_out([(self._second_try(lesson), [batch[lesson.problem]]) for lesson in lessons])
        for lesson, second in zip(lessons, tries, strict=True):
            gain = second.scores[lesson.problem] - trial.scores[lesson.problem]
            self._keep(replace(lesson, helped=is_more(gain, 0)))
        text = self._shown([each for each in self.memory if each.helped and each.component == self.component])
        if text == self.text(self.current):
            return
        feedback = [failed[lesson.problem].feedback for lesson in lessons]
        child = self.offer([self.current], {self.component: text}, feedback, trial.mean)
        if child is not None:
            self.notes[child.id] = {"base": dict(self.base), "memory": [asdict(lesson) for lesson in self.memory]}
            self.score([child])
            self.current = child

    def _keep(self, lesson: Lesson) -> None:
        """Add a lesson to the memory; the oldest of the problem, and then of all, are dropped."""
        own = self._own(lesson.problem)
        forgotten = own[: max(0, len(own) + 1 - OWN)]
        self.memory = [*(each for each in self.memory if each not in forgotten), lesson][-MEMORY:]

    def _own(self, problem: str) -> list[Lesson]:
        return [each for each in self.memory if (each.problem, each.component) == (problem, self.component)]

    def _second_try(self, lesson: Lesson) -> Context:
        """The context of one problem's second try, with its own lessons; it is not a candidate."""
        own = [*self._own(lesson.problem), lesson][-OWN:]
        return Context({**self.base, self.component: self._shown(own)}, (self.current.id,), self.cycle)

    def _shown(self, lessons: Sequence[Lesson]) -> str:
        """The base text and the lessons below it, without the oldest where they do not all fit."""
        base, written = lines_of(self.base[self.component]), self.evaluator.kind(self.component).written
        recent = distinct(reversed([written(line) for lesson in lessons for line in lines_of(lesson.text)]))[::-1]
        text = fit([*base, *recent], base, self.count_tokens, self.recipe.max_tokens)
        return "\n".join(base) if text is None else text

    def _lesson(self, attempt: Attempt, own: Sequence[Lesson]) -> str | None:
        text, earlier = self.base[self.component], [lesson.text for lesson in own]
        fence, shown = fence_of([text]), "\n".join(earlier[-OWN:])
        prompt = f"""\
A language model works under these instructions:
{fenced(text, fence)}

It failed at a problem.

{show_attempts([attempt])}

Lessons from earlier failures at the same problem:
{shown or "(none yet)"}

In one or two sentences to the model itself: what went wrong, and what should it do the next time it sees such a problem?"""

        def by_hand(chance: random.Random) -> list[str]:
            known = {line_key(lesson) for lesson in earlier}
            lessons = self.lessons(text, [attempt]).items()
            new = shuffled({line: weight for line, weight in lessons if line_key(line) not in known}, chance)
            lesson = next(new, earlier[-1] if earlier else None)
            if lesson is None:
                raise ReflectionFailed("nothing to learn: the feedback has no usable line that the text lacks")
            return [lesson]

        return self.ask(self.text_request("the lesson", prompt, fence, by_hand, LONGEST_LESSON))
