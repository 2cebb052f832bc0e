r"""The generators of reasoning-gym, a hundred kinds of problems that are made as they are needed: `reasoning-gym/NAME`.

A question belongs to one split, by its text, so that none is ever in two of them, however few there are and however many
problems are asked for.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.sandbox.process import Worker
from fastslow.tasks.base import Example, Feedback, Message, Options, Split, require_package
from fastslow.tasks.data import GeneratedTask, content_id, split_of
from fastslow.tasks.reading import Reading, has_box, has_tag, last_boxed, last_tagged

COMPOSITE = "composite"
TRIES = 64
"""Candidates for one problem."""
BLOCK = 100
"""Problems from one dataset of the worker's, TRIES candidates each."""
MAKING_SECONDS = 20.0
"""Working time to make one problem; most take a millisecond, and a few generators sometimes do not end."""
SLOW_TRIES = 3
"""Candidates that may run out of that time before the generator is refused."""
CLOSE = 0.1
"""A score from here on is credit for a part; below, it is for having written something."""

# Advice that holds for every problem, each a whole sentence; what is true of one problem goes on lines of its own.
CHECK = "Work the problem out step by step, and check the result against every condition in the question."
FINISH = "Go on until the answer meets every condition of the question, because being nearly right does not count."
KEEP_THE_FORM = "Write the answer in exactly the form that the question asks for, separators and line breaks included."
SHORT = "Keep the answer short and simple enough to be checked."
FORMS = {
    "a number": "Where a number is asked for, give the bare number: no words, no units, no calculation.",
    "a list": "Where a list is asked for, give the whole list in square brackets and nothing around it.",
    "a map": "Where a map of names to values is asked for, give all of it in braces and nothing around it.",
    "several lines": "Where rows or steps are asked for, give each of them on a line of its own.",
    "one word": "Where a single word is asked for, give that word alone, without a sentence around it.",
}
"""The forms an answer can have, and the advice for those that have another."""
_NONE, _UNREAD = "No answer to %s is found", "No answer to %s can be read"
_IN_TAGS = "End with the final answer inside tags, as in <answer>42</answer>."
_CLOSE_TAGS = "Close the tags with </answer> right after the final answer."
_IN_A_BOX = r"End with the final answer inside \boxed{}, as in \boxed{42}."
_NUMBER = re.compile(r"[+-]?[0-9][0-9,]*(\.[0-9]*)?(e[+-]?[0-9]+)?|[+-]?\.[0-9]+", re.IGNORECASE)


@dataclass(frozen=True)
class Place(Reading):
    """Where the final answer is asked for and looked for."""

    ask: str
    example: str


READINGS = {
    "tags": Place(
        last_tagged,
        has_tag,
        missing=(f"{_NONE}: there are no <answer> tags.", _IN_TAGS),
        unclosed=(f"{_UNREAD}: the last <answer> is never closed.", _CLOSE_TAGS),
        empty=(f"{_NONE}: the last <answer> tags are empty.", _IN_TAGS),
        ask="End with the final answer inside <answer> and </answer>.",
        example="<answer>%s</answer>",
    ),
    "boxed": Place(
        last_boxed,
        has_box,
        missing=(rf"{_NONE}: there is no \boxed{{}}.", _IN_A_BOX),
        unclosed=(rf"{_UNREAD}: the last \boxed{{ is never closed.", r"Close \boxed{} right after the final answer."),
        empty=(rf"{_NONE}: the last \boxed{{}} is empty.", _IN_A_BOX),
        ask=r"End with the final answer inside \boxed{}.",
        example=r"\boxed{%s}",
    ),
    "text": Place(
        str,
        bool,
        missing=("", ""),
        unclosed=("", ""),
        empty=(f"{_NONE}: the reply is empty.", "Always give an answer."),
        ask="Reply with the final answer and nothing else.",
        example="%s",
    ),
}


class ReasoningGymOptions(Options):
    generator: str = COMPOSITE
    """Which of reasoning-gym's generators makes the problems, as in `task: reasoning-gym/NAME`; `composite` mixes some."""
    parameters: dict[str, Any] = Field(default={})
    """The generator's own parameters, such as min_words; of a mix, {generator: its parameters}."""
    mix: dict[str, Annotated[float, Field(gt=0)]] = Field(default={})
    """The generators of a mix with their weights, as in {letter_counting: 2, chain_sum: 1}."""
    train: int = Field(default=2000, ge=0)
    """Training problems. A generator with few different questions repeats them, but never those of another split."""
    validation: int = Field(default=100, ge=0)
    """Validation problems."""
    test: int = Field(default=100, ge=0)
    """Test problems."""
    seed: int = 0
    """Another seed makes other problems."""
    answer: Literal["tags", "boxed", "text"] = "tags"
    r"""Where the final answer is looked for: in the last <answer> tags, in the last \boxed{}, or in the text as a whole."""
    strict: bool = True
    """Only a full score counts; false keeps the generator's credit for answers that are partly right or merely readable."""
    feedback: Literal["advice", "reference"] = "advice"
    """`reference` adds the expected answer to the feedback on wrong ones, and it can then appear in contexts."""

    @model_validator(mode="after")
    def _known(self) -> ReasoningGymOptions:
        if self.generator == COMPOSITE and not self.mix:
            raise TaskError(
                "task 'reasoning-gym' needs a generator, as in task: reasoning-gym/letter_counting, or several of them, as "
                f"in mix: {{letter_counting: 2, chain_sum: 1}}; the generators are: {', '.join(_ask(do='names'))}"
            )
        if self.generator != COMPOSITE and self.mix:
            raise ValueError(f"mix goes with task: reasoning-gym/composite, but the generator is '{self.generator}'")
        for name, value in self.parameters.items() if self.mix else ():
            if name not in self.mix or not isinstance(value, dict):
                raise ValueError(
                    f"parameters has {name}={value!r}; of a mix, expected {{generator: {{parameter: value}}}} with the "
                    f"generators {', '.join(self.mix)}"
                )
        if problem := _ask(do="check", parts=self.parts()):
            raise ValueError(problem)
        return self

    def parts(self) -> str:
        """The generators with their weights and parameters, as the worker takes them."""
        if self.mix:
            chosen = {name: [weight, self.parameters.get(name, {})] for name, weight in self.mix.items()}
        else:
            chosen = {self.generator: [1, self.parameters]}
        return json.dumps(chosen, default=str)  # YAML has dates, which the worker reads from text


class ReasoningGym(GeneratedTask):
    """Problems of reasoning-gym, made by one of its generators or a mix of them and graded by their own scorers."""

    Options = ReasoningGymOptions
    named = "generator"
    options: ReasoningGymOptions

    def __init__(self, options: ReasoningGymOptions) -> None:
        super().__init__(options)
        self._reading = READINGS[options.answer]
        self._parts = options.parts()
        self._made = lru_cache(maxsize=None)(self._make)
        for split in get_args(Split):  # now, so that a mistake shows before a model is loaded
            self.examples(split)[:1]

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": f"{example.data['question'].strip()}\n\n{self._reading.ask}"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        given, faults = self._reading.read(answer, example.data["about"])
        given = given.strip()
        credit = 0.0
        if not faults:
            credit, faults = self._judge(example, given)
        if not faults:
            return Feedback(1.0, f"Correct: '{one_line(given, 100)}' answers {example.data['about']}.")
        if self.options.feedback == "reference" and example.data["answer"] is not None:
            faults.append(f"The expected answer is '{one_line(example.data['answer'], 1000)}'.")
        return Feedback(0.0 if self.options.strict else credit, "\n".join(faults))

    def _judge(self, example: Example, given: str) -> tuple[float, list[str]]:
        """The scorer's credit, and what is wrong with the answer."""
        problem, shown = example.data, f"'{one_line(given, 100)}'"
        reply = _ask(do="score", parts=self._parts, seed=problem["seed"], index=problem["index"], answer=given)
        if reply is None:
            return 0.0, [f"{shown} for {problem['about']} takes too long to be checked.", SHORT]
        credit = reply["score"] or 0.0
        if credit == 1:
            return 1.0, []
        form = _form(problem["answer"] or "")
        if form and _form(given) != form:
            return credit, [f"{shown} for {problem['about']} is not in the expected form, {form}.", FORMS[form]]
        if reply["score"] is None:
            return 0.0, [f"{shown} for {problem['about']} is not in the expected form.", KEEP_THE_FORM]
        facts = f" ({', '.join(problem['facts'])})" if problem["facts"] else ""
        fault = f"{shown} is a wrong answer to {problem['about']}{facts}"
        if credit >= CLOSE:
            return credit, [f"{fault}, though the scorer gives it {min(credit, 0.99):.2g} of 1.", FINISH]
        return credit, [f"{fault}.", CHECK, KEEP_THE_FORM]

    def _example(self, split: Split, index: int) -> Example:
        return self._made(split, index)

    def _make(self, split: Split, position: int) -> Example:
        """The first candidate for this position that is for this split and can be answered."""
        block, place = divmod(position, BLOCK)
        # The datasets of neighbouring seeds are the same one, a problem apart: Random(seed + index).
        seed = int(hashlib.sha256(f"{self.options.seed}/{split}/{block}".encode()).hexdigest()[:7], 16)
        slow, failure = 0, f"none of {TRIES} questions is for the split {split}"
        for index in range(place * TRIES, (place + 1) * TRIES):
            made = _ask(do="make", parts=self._parts, seed=seed, index=index)
            if made is None:
                slow, failure = slow + 1, f"one problem takes more than {MAKING_SECONDS:g} seconds"
                if slow == SLOW_TRIES:
                    break
            elif "error" in made:
                failure = made["error"]
            elif made["sound"] and home_of(made["question"]) == split and self._can_be_written(made["answer"]):
                about = f"{made['generator']} problem {split}/{position}"
                facts = [fact for fact in made["facts"] if not _mentions(fact, made["answer"])]
                name = f"{about.replace(' problem ', '/')}-{content_id(made['question'])[:8]}"
                return Example(name, {**made, "about": about, "facts": facts, "seed": seed, "index": index})
        if position:  # there are so few questions that none of this split's came up: an earlier one comes again
            earlier = self._made(split, position // 2)
            return replace(earlier, id=f"{earlier.id}@{position}")
        raise TaskError(
            f"generator '{self.options.generator}' makes no problem with these parameters: {one_line(failure, 150)}; "
            f"choose parameters that allow more or easier questions, or set {split}: 0"
        )

    def _can_be_written(self, reference: str | None) -> bool:
        return reference is None or self._reading.last(self._reading.example % reference) == reference


def home_of(question: str) -> Split:
    """The split a question is for, whatever its spaces and capitals."""
    return split_of(" ".join(question.casefold().split()))


def _form(text: str) -> str | None:
    """The form of an answer, where it can be recognised."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return "a number"
    if text.startswith("[") and text.endswith("]"):
        return "a list"
    if text.startswith("{") and text.endswith("}"):
        return "a map"
    if "\n" in text:
        return "several lines"
    return "one word" if text.isalpha() else None


def _mentions(fact: str, reference: str | None) -> bool:
    return reference is not None and re.search(rf"(?<!\w){re.escape(reference.strip())}(?!\w)", fact) is not None


def _ask(**request: Any) -> Any:
    return _worker().ask(request).value


@cache
def _worker() -> Worker:
    """One for all tasks of this family, because it takes seconds to start."""
    require_package("reasoning-gym", "reasoning_gym", "reasoning-gym")
    handler = Path(__file__).with_name("reasoning_gym_worker.py")
    return Worker(handler, MAKING_SECONDS, environment={"PYTHONHASHSEED": "0"})
