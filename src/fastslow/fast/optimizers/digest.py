"""Read every graded rollout, believe what the grader says of several problems, and take out again what does not help.

1. *Read.* Every rollout of either loop is evidence: which statements the grader made, about which problems, under which text
   (`fast/digest/transcript.py`), with the values of single problems left out (`classes.py`). Statements about several
   problems are rules, the others are mostly remarks (`support.py`).
2. *Be bold, then prune.* All statements that are expected to be worth their length enter the text at once, and stay unless
   the rollouts speak against them (`model.py`).
3. *Judge where it matters.* A line's effect on the score is estimated on the problems it is about, pooled over all rollouts
   drawn with and without it (`effects.py`); and so is whether the grader stops saying it (`words.py`), which shows lines that
   pay only together. Both decide which lines a text takes (`choice.py`). Each batch plays the best text beside texts drawn
   from the posterior, so that doubtful lines are there in some and missing in others, on problems that those lines are about;
   the text that the run began with is among them until it is surely beaten. The text with the greatest expected gain is kept
   as the best, never the luckiest mean.
4. *Show.* Where a line is in the text and is still not kept, solved problems may enter as examples, and answers that came
   near are tried again (`answers.py`).

The lines judged are those of prompts. Code is revised once a cycle, by a reflection model, and plays beside the present code
on the same problems under the same lines. If it is better, it takes its place, and what was drawn under the old code counts
no longer.

A reflection model, where there is one, reads the counted statements with examples and writes the lines (`writing.py`);
without one the statements are the lines. Carried contexts are not scored anew: what was drawn earlier counts on, and less
with age.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from fastslow.base.world import derive_seed
from fastslow.fast.digest.answers import MOST_RETRIED, TRIES, Answers, Try, Wrong
from fastslow.fast.digest.journal import Said, component_of, key_of
from fastslow.fast.digest.model import NOTHING, Choice, Model
from fastslow.fast.digest.reading import parts_of_texts, read_feedback
from fastslow.fast.digest.transcript import Graded, Transcript
from fastslow.fast.digest.writing import (
    MOST_EXAMPLES,
    MOST_STATEMENTS,
    Heard,
    Line,
    Writer,
    read_lines,
    wish,
)
from fastslow.fast.evaluator import Evaluator
from fastslow.fast.optimizers.base import Cycle, Edit, LineEffect, Optimizer
from fastslow.fast.pool import Member, Pool
from fastslow.fast.reflection import Attempt, Reflector
from fastslow.recipe import Part
from fastslow.records import Context, Example, Rollout
from fastslow.runs.ledger import Purpose

FIRST_LOOK = 32
"""Problems that the first text of a run is played on, to have something to read."""
BATCHES = 8
"""Into how many batches a budget is divided: after each the texts are chosen anew."""
LEAST_BATCH = 16
CODE_TRIES = 3
"""Proposals of code that share half of a budget."""
DESIGNS = 4
"""Texts that a batch compares."""
DRAWS = 2
"""Of these, those that each problem is played under, in turn."""
SURE = 1.0
"""Deviations by which a text's expected gain must exceed nothing to be kept as the best, where the base text has something to
lose."""
BEATEN = 0.02
"""The chance of being worse than the base text below which the base text is no longer played."""


class DigestOptions(Part):
    examples: bool = True
    """Answers may stand in the text, with their questions; without them it has only what the grader says. `false` where rows
    hold personal data."""


class Digest(Optimizer):
    Options = DigestOptions
    evolves_code = True
    reads_rollouts = True
    first_look = FIRST_LOOK
    covers_budget = False

    def open(self, evaluator: Evaluator, reflector: Reflector, carried: Pool) -> None:
        """Take up what earlier cycles left, and read what the slow loop has drawn since."""
        super().open(evaluator, reflector, carried)
        kept = next((notes["digest"] for notes in self.notes.values() if "digest" in notes), None)
        self.transcript = Transcript.from_data(kept.get("transcript", {})) if kept else Transcript()
        base = kept["base"] if kept else dict(self.carried.best.context.texts)
        self.base = Context(base)
        self.contexts.setdefault(self.base.id, self.base)
        self.components = [name for name in self.components if name not in self.code]
        self.found_code = False
        lists = {each.name for each in evaluator.components if each.kind == "skills"}
        written = {name: base[name] for name in self.components}
        self.writer = Writer(written, self.recipe.max_tokens, self.count_tokens, lists)
        for key, line in self.writer.loose.items():
            self.transcript.declare(key, line)
        self.chance = random.Random(derive_seed(self.seed, "search"))
        self.normal = np.random.default_rng(derive_seed(self.seed, "posterior"))
        self.played: Counter[str] = Counter()
        self._failed: dict[str, list[Attempt]] = {}
        """By component of code: attempts that were not right."""
        self.answers = Answers(
            self.transcript, self.cycle, self.evaluator.budget, self.recipe.max_tokens, self.count_tokens
        )
        if kept:
            self.answers.restore(kept.get("nearest", []), evaluator.problems)
        self._drawn: dict[str, list[float]] = {}
        self._shapes: dict[tuple[tuple[str, str], ...], tuple[frozenset[str], int]] = {}
        if self.evaluator.evidence is not None:
            self._read(self.evaluator.evidence.rollouts, self.cycle - 1)
            self.evaluator.reused["rescore"] = len(self.evaluator.evidence.rollouts)

    def search(self) -> None:
        if not self.transcript.rows:
            look = self.anchors[:FIRST_LOOK]
            self.progress(f"reading: the first text on {len(look)} problems")
            self._draw([(example, self.base) for example in look], "rescore")
        self._revise_code()
        size = max(LEAST_BATCH, math.ceil(self.budget / BATCHES))
        examples = self.recipe.optimizer.examples
        while (left := self.budget - self.spent) > 0 and not self._nothing_left():
            self.generations += 1
            if self.generations in (1, 1 + BATCHES // 2):
                self._ask()
            model = self._model()
            if examples and self.answers.demonstrate(model):
                model = self._model()
            self.progress(f"batch {self.generations}: {self.spent}/{self.budget} rollouts{self._silence(model)}")
            if examples and (tries := self.answers.again(model, min(MOST_RETRIED * TRIES, left))):
                self._try_again(model, tries)
                continue
            if examples and self.answers.correct(model):
                model = self._model()
            designs = self._designs(model)
            contexts = [self._context(model, design) for design in designs]
            each = min(DRAWS, len(contexts))
            count = min(size, left) // each
            if not count:
                break
            problems = self._problems(model, designs, count)
            turns = itertools.cycle(contexts)
            self._draw([(example, next(turns)) for example in problems for _ in range(each)], "fast-score")

    def _silence(self, model: Model) -> str:
        """While nothing scores: how far the words say that it has come."""
        if any(row.score for row in self.transcript.rows):
            return ""
        gone, made = model.complaints()
        return f"; every reward is 0; {gone} of {made} complaints are gone" if made else "; every reward is 0"

    def _nothing_left(self) -> bool:
        """Some text was right in every draw of this cycle, on as many problems as the first look has."""
        return any(
            len(scores) >= min(FIRST_LOOK, len(self.anchors)) and min(scores) >= 1 for scores in self._drawn.values()
        )

    # Playing and reading -----------------------------------------------------------------------------------------------

    def _draw(self, pairs: Sequence[tuple[Example, Context]], purpose: Purpose) -> None:
        rollouts = self.evaluator.draw(pairs, purpose)
        self.played.update(example.id for example, _ in pairs)
        for rollout in rollouts:
            self._drawn.setdefault(rollout.context.id, []).append(rollout.score)
        self._read(rollouts, self.cycle)

    def _try_again(self, model: Model, tries: Sequence[Try]) -> None:
        """Such rollouts say nothing of lines; an answer that is right may stand as an example. Wrong answers to other
        problems do not stand beside the one that is to be corrected: what is wrong with them would come back."""
        shown = model.judged(model.best.taken - self.answers.corrections())
        texts, pairs = model.texts(shown), []
        for each in tries:
            below = {each.component: f"{texts[each.component]}\n{each.below}"}
            context = Context({**self.base.texts, **texts, **below}, (self.base.id,), self.cycle)
            self.contexts[context.id] = context
            pairs.append((each.wrong.example, context))
        rollouts = self.evaluator.draw(pairs, "fast-minibatch")
        self.answers.righted = sum(rollout.score >= 1 for rollout in rollouts)
        self._read(rollouts, self.cycle, [each.wrong for each in tries])

    def _read(self, rollouts: Iterable[Rollout], cycle: int, tried: Iterable[Wrong] = ()) -> None:
        """Read rollouts, some of which may have tried a wrong answer again."""
        for rollout, wrong in itertools.zip_longest(rollouts, tried):
            if self.answers.gives_away(rollout) or not self._has_the_code(rollout.context):
                continue
            lines = self._lines(rollout)
            parts, longer = self._shape(rollout.in_play)
            keys = tuple(tuple(part.key for part in line) for line in lines)
            again = None if wrong is None else tuple(part.key for line in wrong.lines for part in line)
            row = Graded(rollout.example.id, parts, longer, rollout.score, cycle, keys, again)
            question = "\n".join(turn.question for turn in rollout.turns)
            answer = rollout.turns[-1].answer if rollout.turns else ""
            self.transcript.add(row, itertools.chain(*lines), question, answer)

    def _shape(self, texts: Mapping[str, str]) -> tuple[frozenset[str], int]:
        """The parts of texts, and by how many tokens they are longer than the base text."""
        key = tuple(texts.items())
        if key not in self._shapes:
            shown, begun = ({name: each[name] for name in self.components} for each in (texts, self.base.texts))
            tokens, base = (sum(map(self.count_tokens, each.values())) for each in (shown, begun))
            self._shapes[key] = parts_of_texts(shown), tokens - base
        return self._shapes[key]

    def _lines(self, rollout: Rollout) -> list[list[Said]]:
        """What the grader said of a rollout; attempts that may be shown later are kept."""
        found = []
        for component in self.code if rollout.score < 1 else ():
            if attempt := self.attempt(rollout, component):
                self._failed.setdefault(component, []).append(attempt)
        for component in self.components:
            attempt = self.attempt(rollout, component)
            if attempt is None:
                continue
            lines = read_feedback(component, attempt.feedback, attempt.answer, attempt.question, self.transcript.parts)
            self.answers.add(component, rollout, attempt, lines)
            found += lines
        return found

    # Code --------------------------------------------------------------------------------------------------------------

    def _has_the_code(self, context: Context) -> bool:
        return all(context.texts[name] == self.base.texts[name] for name in self.code)

    def _revise_code(self) -> None:
        """Play proposed code beside the present one on the same problems, several proposals in up to half of the budget; the
        first that is better by more than one standard error of the difference takes its place."""
        for component in sorted(self.code & set(self.evolving)):
            end = self.spent + (self.budget - self.spent) // 2
            count = min((end - self.spent) // (1 + CODE_TRIES), len(self.anchors))
            if not self._failed.get(component) or count < 2:
                continue
            model = self._model()
            parent = self._context(model, model.best)
            problems = self.chance.sample(self.anchors, count)
            present: list[Rollout] = []
            while self.spent + count <= end and (child := self._propose_code(component, parent)):
                self.progress(f"new code for {component}: {count} problems beside the present one")
                shown = [parent, child] if not present else [child]
                rollouts = self.evaluator.draw(
                    [(each, context) for context in shown for each in problems], "fast-minibatch"
                )
                present, new = present or rollouts[:count], rollouts[-count:]
                if self._is_better(self.edits[child.id], present, new):
                    self._take_code(component, child)
                    self._read(new, self.cycle)
                    break
                self._read(rollouts, self.cycle)

    def _propose_code(self, component: str, parent: Context) -> Context | None:
        """The parent with new code, by attempts that were not right."""
        failed = self._failed[component]
        shown = self.chance.sample(failed, min(MOST_EXAMPLES, len(failed)))
        return self.child(
            [parent],
            component,
            lambda seed: self.reflector(self.request(parent, component, shown, seed)),
            [attempt.feedback for attempt in shown],
        )

    def _is_better(self, edit: Edit, present: Sequence[Rollout], new: Sequence[Rollout]) -> bool:
        gains = [after.score - before.score for before, after in zip(present, new, strict=True)]
        edit.before, edit.after = (fmean(each.score for each in rollouts) for rollouts in (present, new))
        edit.accepted = math.fsum(gains) > math.sqrt(math.fsum(gain**2 for gain in gains))
        if not edit.accepted:
            edit.reason = (
                f"{edit.after:.2f} on {len(new)} problems is not surely above the present code's {edit.before:.2f}"
            )
        return edit.accepted

    def _take_code(self, component: str, child: Context) -> None:
        """What was drawn under the old code counts no longer."""
        self.found_code = True
        self.base = Context({**self.base.texts, component: child.texts[component]}, (self.base.id,), self.cycle)
        self.contexts.setdefault(self.base.id, self.base)
        self.transcript.restart()
        for kept in (self.answers, self._failed, self._drawn):
            kept.clear()

    # Asking ------------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Have a reflection model write lines from what was said; without one the statements themselves come back."""
        model = self._model()
        for component in self.components:
            heard = self._heard(component, model)
            failed = self.answers.wrong.get(component, [])
            shown = [each.attempt for each in self.chance.sample(failed, min(MOST_EXAMPLES, len(failed)))]
            if not heard:
                continue
            request = wish(
                component, self.base.texts[component], heard, shown, self.recipe.max_tokens, self.count_tokens
            )
            answer = self.asked(lambda seed, request=request: self.reflector.write(request, seed))  # type: ignore[misc]
            for line, covered in read_lines(answer or "", heard):
                if (key := key_of(component, line)) not in covered:
                    self.transcript.declare(key, line, self.transcript.parts_in(covered))

    def _heard(self, component: str, model: Model) -> list[Heard]:
        statements = model.journal.statements
        said = [each for key, each in statements.items() if component_of(key) == component and each.problems]
        said.sort(key=lambda each: -len(each.problems))
        return [
            Heard(each.key, each.text, len(each.problems), each.key in model.best.taken)
            for each in said[:MOST_STATEMENTS]
        ]

    # Choosing ----------------------------------------------------------------------------------------------------------

    def _model(self) -> Model:
        return Model(self.transcript.read(), self.writer, self.cycle)

    def _designs(self, model: Model) -> list[Choice]:
        """The best text, others that draws from the posterior call best, and the base text while it may be better."""
        found = {model.best.taken: model.best}
        shown = model.best.taken & self.transcript.examples.keys()
        without = model.judged(model.best.taken - shown)
        if shown and self.answers.unsolved():  # wrong answers show more than none
            others = (model.sampled(self.normal) for _ in range(3 * DESIGNS))
            found |= {without.taken: without, **{each.taken: each for each in others if each.taken & shown}}
            return list(found.values())[:DESIGNS]
        if shown and _chance_below(model.judged(model.best.taken, without.taken)) > BEATEN:
            found[without.taken] = without
        if model.best.taken != model.base and _chance_below(model.best) > BEATEN:
            found[model.base] = model.judged(model.base)
        checked = model.checked(self.normal)
        found.setdefault(checked.taken, checked)
        for _ in range(3 * DESIGNS):
            if len(found) == DESIGNS:
                break
            drawn = model.sampled(self.normal)
            found.setdefault(drawn.taken, drawn)
        return list(found.values())

    def _context(self, model: Model, choice: Choice) -> Context:
        texts = model.texts(choice)
        context = Context(texts, (self.base.id,), self.cycle)
        if context.id in self.contexts:
            return self.contexts[context.id]
        offered = self.offer([self.base], texts, [line.text for line in model.lines if line.key in choice.taken])
        return offered or self.base

    def _problems(self, model: Model, designs: Sequence[Choice], count: int) -> list[Example]:
        """Problems that decide something: those that the lines in doubt are about, and those of which nothing is known."""
        varied = frozenset().union(*(d.taken for d in designs)) - designs[0].taken.intersection(
            *(d.taken for d in designs)
        )
        doubt = {key: model.effect(key)[1] for key in varied}
        weights = {}
        for example in self.anchors:
            about = model.journal.about(example.id)
            if about:
                weights[example.id] = 0.02 + 4 * sum(doubt[key] for key in sorted(about & doubt.keys()))
            else:
                weights[example.id] = 0.5 ** self.played[example.id]
        # The largest of these draws are a sample without replacement that is proportional to the weights.
        order = sorted(
            self.anchors, key=lambda example: self.chance.random() ** (1 / weights[example.id]), reverse=True
        )
        return (order * math.ceil(count / len(order)))[:count]

    # Ending ------------------------------------------------------------------------------------------------------------

    def result(self) -> Cycle:
        model = self._model()
        chosen = {model.best.taken: model.best}
        level = model.level()
        if level > NOTHING and model.best.gain < SURE * min(model.best.deviation, level):
            chosen = {model.base: model.judged(model.base)}
        first = next(iter(chosen))
        for _ in range(4 * self.recipe.population):
            if len(chosen) == self.recipe.population:
                break
            drawn = model.sampled(self.normal)
            chosen.setdefault(drawn.taken, drawn)
        kept = {self._context(model, choice).id: choice for choice in chosen.values()}
        ranked = sorted(kept, key=lambda key: (kept[key].taken != first, -kept[key].gain))
        members = [self._member(model, key, kept[key], place) for place, key in enumerate(ranked)]
        for edit in self.edits.values():
            if edit.component in self.code:
                continue
            if edit.child in kept:
                edit.accepted, edit.score = True, members[ranked.index(edit.child)].mean
            else:
                edit.reason = "a comparison, not kept"
        notes = {
            "base": dict(self.base.texts),
            "transcript": self.transcript.to_data(),
            "nearest": self.answers.to_data(model),
        }
        members[0] = replace(members[0], notes={"digest": notes})
        found = ranked[0] != self.carried.best.context.id and _chance_below(kept[ranked[0]]) < 0.05
        found = found or self.found_code
        return Cycle(
            Pool(tuple(members)),
            found,
            list(self.edits.values()),
            list(self.contexts.values()),
            self.generations,
            self.faults,
            self.evaluator.reused,
            lines=[self._effect(model, line) for line in model.lines],
        )

    def _effect(self, model: Model, line: Line) -> LineEffect:
        problems = model.journal.statements[line.key].problems
        kept = model.kept(line.key) or (None, None)
        return LineEffect(component_of(line.key), line.text, len(problems), *model.effect(line.key), *kept)

    def _member(self, model: Model, key: str, choice: Choice, place: int) -> Member:
        problems = [example.id for example in self.anchors]
        scores = dict(zip(problems, model.expected(choice, problems), strict=True))
        return Member(self.contexts[key], scores, self.evaluator.policy_step, front=not place, wins=int(not place))


def _chance_below(choice: Choice) -> float:
    """The probability that a text is worse than the base text."""
    if not choice.deviation:
        return 0.5
    return 0.5 * math.erfc(choice.gain / choice.deviation / math.sqrt(2))
