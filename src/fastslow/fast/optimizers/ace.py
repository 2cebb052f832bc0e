"""ACE (Zhang et al. 2025, arXiv 2510.04618): a playbook of items, changed item by item and never rewritten.

Keeps: items below the text that the run began with, each with counts of how often it was helpful and harmful; after every
minibatch a small list of changes (add, update, remove, and marks for the counters), which is applied without testing whether
it helps; the least helpful items are dropped when the playbook grows too long, and duplicates are merged.

Reflecting and curating are one request, for which items are numbered; the policy reads no counters; duplicates have the same
words. Playbooks are scored on all anchors every few steps and at the end, because only a scored one can be kept.

Without a model: an item is marked by the outcome of the attempts whose problem shares a word with it; lines of the feedback
are added, or replace a harmful item about the same word; items that do more harm than good are removed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from fastslow.fast.optimizers.lines import lines_of
from fastslow.fast.optimizers.steps import Steps, Trial
from fastslow.fast.reflection import ReflectionFailed, TextRequest
from fastslow.fast.reflection.lessons import line_key, shuffled
from fastslow.fast.reflection.prompt import fence_of, fenced, show_attempts
from fastslow.records import Context

SCORED_EVERY = 4
"""Steps between two playbooks that are scored on all anchors."""
LONGEST_CHANGES = 1024
"""Tokens of a list of changes."""
ADDED = 2
"""The most items that are added at once without a model."""
TOO_HARMFUL = 3
"""How many more harmful than helpful marks remove an item without a model."""

_CHANGE = re.compile(
    r"^\W*(?:\d+[.)]\s+)?(ADD|UPDATE|REMOVE|HELPFUL|HARMFUL)\b\W*((?:\d++[\s,]*+)*+)[:.\s]*(.*)$", re.IGNORECASE
)
_NUMBER = re.compile(r"(?<!\d)\d{1,4}(?!\d)")


@dataclass(frozen=True)
class Item:
    """A line of the playbook."""

    text: str
    helpful: int = 0
    harmful: int = 0

    @property
    def worth(self) -> int:
        return self.helpful - self.harmful


class Ace(Steps):
    supports = frozenset({"reuse"})
    trials = 1

    def search(self) -> None:
        super().search()
        self._score()

    def begin(self) -> None:
        notes = self.notes.get(self.current.id, {})
        self.base: dict[str, str] = dict(notes.get("base") or self.current.texts)
        self.items = {name: [Item(**each) for each in items] for name, items in notes.get("items", {}).items()}

    def step(self) -> None:
        (trial,) = self.try_out([(self.current, self.minibatch())])
        items = self.items.get(self.component, [])
        changes = self.ask(self._changes(trial, items))
        if changes is not None:
            self.failures_in_a_row = 0
            self._apply(trial, changed(items, changes))
        if self.generations % SCORED_EVERY == 0 or self.left < self.price:
            self._score()

    def _score(self) -> None:
        if self.current.id not in self.members:
            self.score([self.current])

    def _apply(self, trial: Trial, items: Sequence[Item]) -> None:
        """Make the changed playbook the current one; where only counters changed, the context stays the same."""
        items = list({line_key(item.text): item for item in items}.values())
        while items and self.count_tokens(self._written(items)) > self.recipe.max_tokens:
            items.remove(min(items, key=lambda item: item.worth))  # the oldest of the least useful
        text = self._written(items)
        self.items = {**self.items, self.component: items}
        if text != self.text(self.current):
            child = self.offer([self.current], {self.component: text}, trial.feedback, trial.mean)
            known = Context({**self.current.texts, self.component: text})
            self.current = child or self.contexts.get(known.id, self.current)
        noted = {name: [asdict(item) for item in each] for name, each in self.items.items()}
        self.notes[self.current.id] = {"base": self.base, "items": noted}

    def _written(self, items: Sequence[Item]) -> str:
        written = self.evaluator.kind(self.component).written
        return "\n".join([*lines_of(self.base[self.component]), *(written(item.text) for item in items)])

    def _changes(self, trial: Trial, items: Sequence[Item]) -> TextRequest:
        base, numbered = self.base[self.component], list(enumerate(items, start=1))
        fence = fence_of([base, *(item.text for item in items)])
        shown = [f"{n}. (helpful {item.helpful}, harmful {item.harmful}) {item.text}" for n, item in numbered]
        playbook = "\n".join(shown) or "(no items yet)"
        prompt = f"""\
A language model works under these instructions:
{fenced(base, fence)}

Below them it reads a playbook of items:
{fenced(playbook, fence)}

This is how it did. Scores run from 0 (failed) to 1 (solved).

{show_attempts(list(trial.attempts.values()))}

Change the playbook, one line for each change, in these forms and no other:
ADD: a new item, one sentence that helps with problems of this kind
UPDATE 3: a better wording of item 3
REMOVE 3
HELPFUL 1 4
HARMFUL 2
HELPFUL and HARMFUL mark the items that helped or misled in these attempts. Change little, repeat no item, and write rules
that hold for new problems."""

        def by_hand(chance: random.Random) -> list[str]:
            changes = [
                f"{'HELPFUL' if attempt.score >= 1 else 'HARMFUL'} {number}"
                for attempt in trial.attempts.values()
                for number, item in numbered
                if _words(item.text) & _words(attempt.question)
            ]
            asked = _words("\n".join(attempt.question for attempt in trial.failed))
            touched: set[int] = set()
            for lesson in list(shuffled(self.lessons(self._written(items), trial.failed), chance))[:ADDED]:
                about = _words(lesson) & asked
                rival = next((n for n, item in numbered if item.worth < 0 and _words(item.text) & about), 0)
                changes.append(f"UPDATE {rival}: {lesson}" if rival and rival not in touched else f"ADD: {lesson}")
                touched.add(rival)
            changes += [f"REMOVE {n}" for n, item in numbered if item.worth <= -TOO_HARMFUL and n not in touched]
            if trial.failed and not changes:
                raise ReflectionFailed("nothing to change: the feedback has no usable line that the playbook lacks")
            return changes

        return self.text_request("the changes", prompt, fence, by_hand, LONGEST_CHANGES)


def changed(items: Sequence[Item], changes: str) -> list[Item]:
    """The items after a list of changes. Numbers refer to the items before; lines of another form are ignored."""
    after: dict[int, Item] = dict(enumerate(items, start=1))
    added: list[Item] = []
    for match in filter(None, map(_CHANGE.match, lines_of(changes))):
        verb, text = match[1].upper(), match[3].strip()
        if verb == "ADD" and (new := f"{match[2]}{text}".strip()):
            added.append(Item(new))
            continue
        for number in {int(digits) for digits in _NUMBER.findall(match[2])} & set(after):
            if verb == "UPDATE" and text:
                after[number] = Item(text)
            elif verb == "REMOVE":
                del after[number]
            elif verb in ("HELPFUL", "HARMFUL"):
                mark = verb.lower()
                after[number] = replace(after[number], **{mark: getattr(after[number], mark) + 1})
    return [*after.values(), *added]


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", text.casefold()) if len(word) > 2}
