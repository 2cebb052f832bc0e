"""Skills: texts that are loaded where a question concerns them, so that not every rule stands in front of every question.

There are two forms. A component of kind `skill` is one named text; it stands below the text of the component that is asked.
A component of kind `skills` has a list in its text: the lines that begin with `- ` are its entries, each with the indented
lines below it, and what stands before and after the list is shown always. With `fast.skills` every prompt of a task is of
this kind.

Which ones are loaded the task says (`Ask.skills`), or BM25 does: those that share the most telling words with the messages
before the first answer, so that a conversation keeps its first messages. The same texts and messages load the same skills.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastslow.base.errors import RecipeError, TaskError
from fastslow.records import Component

if TYPE_CHECKING:
    from bm25s import BM25

    from fastslow.tasks.base import Message, Task

USUAL = 3
"""Skills that are loaded at the most where a task has components of kind `skill` and the recipe says nothing."""
MARK = "- "
LONGEST_NAME = 6
"""Words before a colon that are an entry's name."""
_WORDS = r"(?u)[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\b\w\w+\b"
"""What counts as a word; in scripts without spaces each character does."""
PLACES = 4
"""Decimal places to which scores are compared: what they are summed from has no fixed order."""


@dataclass(frozen=True)
class Sections:
    """A text with a list of entries, as lines."""

    before: tuple[str, ...]
    entries: tuple[str, ...]
    """Without their marks; lines below the first are indented."""
    after: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n".join([*self.before, *(MARK + entry for entry in self.entries), *self.after]).strip("\n")


@lru_cache(maxsize=1024)
def sections(text: str) -> Sections:
    """The first list of a text, and what stands around it."""
    lines = text.splitlines()
    first = next((place for place, line in enumerate(lines) if line.startswith(MARK)), None)
    if first is None:
        return Sections(tuple(lines), ())
    end = last = first
    while end < len(lines) and (not (line := lines[end]).strip() or line.startswith((MARK, " ", "\t"))):
        end += 1
        last = end if line.strip() else last
    entries: list[str] = []
    for line in lines[first:last]:
        if line.startswith(MARK):
            entries.append(line.removeprefix(MARK))
        else:
            entries[-1] += f"\n{line}"
    return Sections(tuple(lines[:first]), tuple(each.rstrip() for each in entries), tuple(lines[last:]))


def listed(text: str) -> str:
    """A text as an entry of a list: the lines below its first are indented."""
    return text.strip().replace("\n", "\n  ")


def name_of(entry: str) -> str:
    """What stands before the colon of an entry, if that is short enough to be a name; else its first line."""
    first = entry.partition("\n")[0].strip()
    name, colon, _ = first.partition(":")
    return name.strip("*_`\"' ") if colon and len(name.split()) <= LONGEST_NAME else first


@lru_cache(maxsize=256)
def _index(texts: tuple[str, ...]) -> BM25 | None:
    """None if there is no word in the texts."""
    import bm25s

    words = _words(texts)
    if not any(words):
        return None
    index = bm25s.BM25()
    index.index(words, show_progress=False)
    return index


def _words(texts: Sequence[str]) -> list[list[str]]:
    import bm25s

    found: list[list[str]] = bm25s.tokenize(
        list(texts), token_pattern=_WORDS, stopwords="en", return_ids=False, show_progress=False
    )
    return found


@lru_cache(maxsize=16_384)
def best_matches(texts: tuple[str, ...], question: str, count: int) -> tuple[int, ...]:
    """The places of the texts that match a question best, at most so many, in their order; none that shares no word with
    it."""
    index = _index(texts)
    words = [word for word in _words([question])[0] if index is not None and word in index.vocab_dict]
    if index is None or not words:
        return ()
    scores = [round(float(score), PLACES) for score in index.get_scores(words)]
    ranked = sorted(range(len(texts)), key=lambda place: (-scores[place], place))
    return tuple(sorted(place for place in ranked[:count] if scores[place] > 0))


@dataclass(frozen=True)
class Library:
    """How the texts of a task are loaded: its components with their kinds, and how many skills stand in front of a
    question."""

    components: Sequence[Component]
    count: int

    def over(self, texts: Mapping[str, str]) -> Skills:
        return Skills(self, texts)


def library_of(task: Task, wanted: int | None) -> Library | None:
    """The library of a task under `fast.skills`; None if all of its texts are shown whole."""
    components = list(task.components)
    if wanted is not None:
        components = [replace(each, kind="skills") if each.kind == "prompt" else each for each in components]
    if not any(each.kind in ("skill", "skills") for each in components):
        return None
    if find_spec("bm25s") is None:
        needed = f"fast.skills={wanted}" if wanted is not None else "a task with components of kind skill"
        raise RecipeError(
            f"{needed} needs the package bm25s, which is not installed; install it with: pip install 'fastslow[tasks]'"
        )
    return Library(components, USUAL if wanted is None else wanted)


class Skills(UserDict[str, str]):
    """The texts of one context, of which a question is shown what concerns it."""

    def __init__(self, library: Library, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        self.library = library
        self.given: dict[str, Mapping[str, str]] = {}
        """By component: what it was last shown, which is in play in its turn."""
        self.kinds = {each.name: each.kind for each in library.components}

    def shown(
        self, component: str, messages: Sequence[Message], skills: Sequence[str] | None = None
    ) -> Mapping[str, str]:
        """What stands in front of these messages to a component, by the component that the text is of."""
        text = self[component]
        own = sections(text) if self.kinds.get(component) == "skills" else Sections((text,), ())
        others = [name for name, kind in self.kinds.items() if kind == "skill" and name != component]
        if skills is None:
            candidates = (*own.entries, *(f"{name}: {self[name]}" for name in others))
            chosen = best_matches(candidates, _question(messages), self.library.count)
        else:
            named = [*map(name_of, own.entries), *others]
            # Entries evolve, so one that a task names may be gone.
            if self.kinds.get(component) != "skills" and (unknown := sorted(set(skills) - set(named))):
                raise TaskError(f"an ask names the skills {unknown}; the task's are {sorted(named)}")
            chosen = tuple(place for place, name in enumerate(named) if name in skills)
        entries = tuple(own.entries[place] for place in chosen if place < len(own.entries))
        loaded = [others[place - len(own.entries)] for place in chosen if place >= len(own.entries)]
        shown = text if entries == own.entries else replace(own, entries=entries).text
        self.given[component] = {component: shown, **{name: self[name] for name in loaded}}
        return self.given[component]

    def narrowed(self, question: str) -> dict[str, str]:
        """What one question is shown of every text: for programs that place the texts themselves."""
        messages = [{"role": "user", "content": question}]
        return {name: "\n\n".join(filter(None, self.shown(name, messages).values())) for name in self}


def _question(messages: Sequence[Message]) -> str:
    """What is asked before the first answer. A task's own system message is the same for every problem."""
    asked = []
    for message in messages:
        if message["role"] == "assistant":
            break
        if message["role"] != "system":
            asked.append(message["content"])
    return "\n".join(asked)
