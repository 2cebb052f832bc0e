"""What reflection is about and who does it.

A `Component` names its kind, which says how a text of it is checked, shown to a reflector and asked for. The loop, the
evaluator and the optimizers handle texts alike; another kind is another class in `KINDS`. A `Reflector` proposes a text,
given a parent's text and its attempts; a `Chat` is the model that it asks, wherever that runs.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Protocol

from fastslow.base.text import hidden_characters
from fastslow.records import Component
from fastslow.runs.ledger import Entry

SHORT_TEXT = 32
"""Below this many words a `light` edit may rewrite a text: it is mostly one line, which any rule changes as a whole."""


class Refusal(NamedTuple):
    """Why a proposed text is not played."""

    fault: str
    """What the journal counts it as."""
    reason: str


class Kind(ABC):
    """A kind of component."""

    form: ClassVar[str] = ""
    """What else there is to know for whoever writes one."""

    @abstractmethod
    def check(self, text: str, count_tokens: Callable[[str], int], max_tokens: int) -> Refusal | None:
        """Why a proposed text must not be played, if so."""

    @abstractmethod
    def unusable(self, text: str) -> str | None:
        """What is wrong with a text, in words for the model that wrote it; None if nothing is."""

    @abstractmethod
    def show(self, component: str, text: str, fence: str) -> str:
        """A component's text in a request for a better one."""

    @abstractmethod
    def ask(self, proposer: Literal["light", "full"], max_tokens: int, fence: str) -> str:
        """What to answer the request with."""

    def of(self, component: Component) -> Kind:
        """The kind of one component, as far as its checks depend on which one it is."""
        return self

    def revised(self, block: str, parent: str) -> str:
        """The text that a model's answer stands for; a ValueError, in words for the model, where it stands for none."""
        return block

    def written(self, line: str) -> str:
        """A line as it is written into a text."""
        return line


class Prompt(Kind):
    """Instructions that the model reads in front of the messages."""

    aims: ClassVar = {
        "light": (
            "Make a small, incremental edit: add, sharpen or remove one or two rules and leave the rest of the text "
            f"unchanged. Do not rewrite the text from scratch, unless it has fewer than {SHORT_TEXT} words: of a longer "
            "text, a revision that keeps less than half of its words is rejected."
        ),
        "full": (
            "You may rewrite the instructions freely, in any structure you like, as long as everything that works in them "
            "is still there."
        ),
    }

    def check(self, text: str, count_tokens: Callable[[str], int], max_tokens: int) -> Refusal | None:
        if hidden := hidden_characters(text):  # people could not tell what the model reads
            return Refusal("proposal_hidden_characters", f"hidden characters: {hidden[:10]!a}")
        tokens = count_tokens(text)
        if tokens > max_tokens:
            return Refusal("proposal_too_long", f"too long: {tokens} tokens, at most {max_tokens} are allowed")
        return None

    def unusable(self, text: str) -> str | None:
        if not text.split():
            return "the revised text was empty"
        if hidden := hidden_characters(text):
            return f"the revised text has characters that a reader does not see: {hidden!a}"
        return "the revised text was not readable instructions" if _is_garbage(text) else None

    def show(self, component: str, text: str, fence: str) -> str:
        return f"""\
A language model works under written instructions. Improve them so that it does better on new problems of the same kind.
The part you are revising is called "{component}".

Its instructions are now:
{fence}
{text}
{fence}"""

    def ask(self, proposer: Literal["light", "full"], max_tokens: int, fence: str) -> str:
        form = self.form and f"{self.form}\n"
        return f"""\
First think about what went wrong, what the failures have in common, and which rule or method would have prevented them.
Then write the revised instructions.

- {self.aims[proposer]}
- Write general rules. The next problems will be different, so leave out answers to single problems and their details.
- Facts about the kind of problem, the expected answer format and a method that works are all worth stating.
{form}- The revised instructions may take at most {max_tokens} tokens.
- Give the whole revised text, not only the changes, inside one fenced block that opens and closes with {fence}. Nothing
  outside that block is used."""


class Skill(Prompt):
    """One text that is loaded where a question concerns it, or where the task asks for it."""

    form = """\
- This part is shown only for questions that it concerns, which are found by the words that they share with it. Keep the words
  in it that such questions have."""


class Skills(Prompt):
    """Instructions with a list, of which a question is shown the entries that match it best."""

    form = """\
- The instructions have one list, whose entries each begin with "- " on a line of their own. A question is shown only the few
  entries that share most words with it, and everything outside the list. So write each rule that concerns some questions as
  one entry, which can be understood alone and has the words of those questions. What concerns every question stands above
  the list, in lines that do not begin with "- "."""

    def written(self, line: str) -> str:
        return line if line.startswith("- ") else f"- {line.strip()}"


def _is_garbage(text: str) -> bool:
    """Broken characters, mostly symbols, or the same few words over and over."""
    if "\ufffd" in text:
        return True
    solid = "".join(text.split())
    if sum(letter.isalnum() for letter in solid) < len(solid) / 2:
        return True
    words = text.casefold().split()
    return len(words) >= 40 and len(set(words)) < len(words) / 10


KINDS: dict[str, Kind] = {"prompt": Prompt(), "skill": Skill(), "skills": Skills()}


def kind_of(component: Component) -> Kind:
    if component.kind not in KINDS:
        raise ValueError(f"a component has the kind '{component.kind}'; expected one of {', '.join(KINDS)}")
    return KINDS[component.kind].of(component)


LONGEST_FEEDBACK, MOST_LINES = 8_000, 64
"""Characters and lines of a feedback that are read: half of them from its beginning, half from its end."""
LONGEST_TEXT = 32_000
"""Characters of a question or of an answer that are read."""


def excerpt(text: str, longest: int, lines: int | None = None) -> str:
    """The beginning and the end of a long text, with a line between them that no reader takes for words."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}\n…\n{text[-(longest // 2) :]}"
    if lines is not None and len(every := text.splitlines()) > lines:
        text = "\n".join([*every[: lines // 2], "…", *every[-(lines // 2) :]])
    return text


@dataclass(frozen=True)
class Attempt:
    """One traced rollout as the reflector sees it."""

    question: str
    """The messages that the policy was shown, without the context, as text."""
    answer: str
    """What the policy answered in this component."""
    feedback: str
    """The grader's feedback."""
    score: float


@dataclass(frozen=True)
class Request:
    """A request for one edit of a parent's text."""

    component: str
    text: str
    """The parent's text for this component."""
    attempts: Sequence[Attempt]
    proposer: Literal["light", "full"]
    max_tokens: int
    """Token budget of the new text."""
    count_tokens: Callable[[str], int]
    seed: int
    """All randomness of the edit depends on it."""
    kind: Kind = KINDS["prompt"]
    refused: Sequence[tuple[str, str]] = ()
    """Earlier proposals that were refused before they were played, with the reasons."""


@dataclass(frozen=True)
class TextRequest:
    """A request for any other text that an optimizer needs: the prompt for a model, and how to write it without one."""

    prompt: str
    """Asks for the text inside a block fenced by `fence`."""
    by_hand: Callable[[random.Random], str]
    """Writes the text without a model, from no more than the prompt shows; raises `ReflectionFailed` where it cannot."""
    max_tokens: int
    count_tokens: Callable[[str], int]
    fence: str = "```"
    kind: Kind = KINDS["prompt"]


@dataclass
class Usage:
    """What reflection has cost so far. The reflector adds to it; the loop books it."""

    calls: int = 0
    """Answers requested from a model; asking again after an unusable answer counts again."""
    retries: int = 0
    """Retries after a transient fault of the connection to a model."""
    failures: int = 0
    """Requests that ended in `ReflectionFailed`."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Time inside the reflector, pauses included."""
    cost: float = 0.0
    """US dollars, for models whose price is known."""

    @property
    def spent(self) -> Entry:
        return Entry(0, self.calls, self.prompt_tokens, self.completion_tokens, self.seconds, self.cost)

    def add(self, **more: float) -> None:
        for name, amount in more.items():
            setattr(self, name, getattr(self, name) + amount)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the time that one request takes, and its failure."""
        started = time.perf_counter()
        try:
            yield
        except ReflectionFailed:
            self.add(failures=1)
            raise
        finally:
            self.add(seconds=time.perf_counter() - started)


class ReflectionFailed(Exception):
    """No usable edit came back; str(error) is the reason.

    `permanent` says that every further request would fail in the same way (a refused key, an unknown model).
    """

    def __init__(self, reason: str, permanent: bool = False) -> None:
        super().__init__(reason)
        self.permanent = permanent


class Reflector(Protocol):
    """Edits a context's text. The new text differs from the parent's, is not empty and is within the token budget.

    It is called on the main process alone; one that samples the policy, so that all processes must call it together, has an
    attribute `collective` that is true. One that cannot write code has an attribute `writes_code` that is false.
    """

    usage: Usage
    """Replaced by an empty one whenever the loop has booked it."""

    def __call__(self, request: Request) -> str:
        """The new text; raises `ReflectionFailed` and nothing else when there is none."""

    def write(self, request: TextRequest, seed: int) -> str:
        """The text that an optimizer other than gepa requests; fails in the same way."""


@dataclass(frozen=True)
class Reply:
    """One answer and what it cost."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    retries: int = 0
    """Retries before this answer."""
    truncated: bool = False
    """The answer reached its length limit."""


class ChatFailed(Exception):
    """There is no answer; str(error) is the reason. `permanent` says that a retry cannot help, `asked` whether the model was
    asked at all."""

    def __init__(self, reason: str, retries: int = 0, permanent: bool = False, asked: bool = True) -> None:
        super().__init__(reason)
        self.retries = retries
        self.permanent = permanent
        self.asked = asked


class Chat(Protocol):
    """Answers a list of `role`/`content` messages; the same seed asks for the same answer. Raises `ChatFailed`."""

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply: ...
