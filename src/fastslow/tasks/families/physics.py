"""Physics: multiple-choice questions with four options, the letter of the right one inside <answer> tags."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import Example, Feedback, Message, QuestionTask
from fastslow.tasks.data import Row, RowTask, SourceOptions, content_id, require_columns
from fastslow.tasks.reading import Reading, has_tag, last_tagged

# Advice that holds for every question, each a whole sentence; what is true of one question goes on lines of its own.
WRITE_TAGS = "End the answer with the letter of one option inside tags, as in <answer>A</answer>."
CLOSE_TAGS = "Close the tags with </answer> right after the letter."
ONLY_THE_LETTER = "Put nothing but one capital letter from A to D between <answer> and </answer>."
REASON_FIRST = "Work the answer out from the laws and definitions that apply before looking at the options."
RULE_OUT = "Compare the result with all four options and rule out those that contradict it, units included."

READING = Reading(
    partial(last_tagged, innermost=False),
    has_tag,
    missing=("The form is wrong: there are no <answer> tags with the letter for %s.", WRITE_TAGS),
    unclosed=("The form is wrong: the last <answer> is never closed, so %s has no letter.", CLOSE_TAGS),
    empty=("The form is wrong: the <answer> tags for %s are empty.", WRITE_TAGS),
)
LETTERS = "ABCD"
FOUR_OPTIONS = "mcq-4-choices"
# An option that speaks of the others' places would become wrong in another order.
_REFERS = re.compile(
    r"\b(all|none|both|any|neither|either) of (the|these)\b|\b[A-D]\b,? (and|or|nor) \b[A-D]\b", re.IGNORECASE
)


class PhysicsOptions(SourceOptions):
    hub: ClassVar[Mapping[str, str]] = {"path": "hicai-zju/SciKnowEval", "subset": "v2", "train_split": "test"}

    path: str = hub["path"]
    """A file with SciKnowEval's columns (`question`, `choices` with `label` and `text`, `answerKey`), or a hub dataset;
    SciKnowEval by default, whose only split is called test: validation and test are held out of it."""
    domain: str | None = "Physics"
    """Only questions of this domain, where the rows name theirs (Physics, Chemistry, Biology, Material); null for all."""
    levels: tuple[str, ...] = ()
    """Only questions of these levels (L1 to L5), where the rows name theirs in `details`; by default all."""
    seed: int = 0
    """Another seed puts the options into another order."""
    feedback: Literal["advice", "reference"] = "advice"
    """`reference` names the right option in the feedback on wrong answers, and it can then appear in contexts."""


class Physics(RowTask, QuestionTask):
    """Choose one of four options, by its letter inside <answer> tags."""

    Options = PhysicsOptions
    options: PhysicsOptions
    seed_text = "Answer the multiple-choice question."

    def key(self, row: Row) -> str:
        return content_id(" ".join(row["question"].casefold().split()))

    def messages(self, example: Example) -> list[Message]:
        options = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, example.data["options"], strict=True))
        question = (
            f"{example.data['question']}\n\n{options}\n\n"
            "Choose the right option. End your answer with its letter inside <answer> and </answer>."
        )
        return [{"role": "user", "content": question}]

    def grade(self, example: Example, answer: str) -> Feedback:
        options, right = example.data["options"], example.data["right"]
        about = f"'{one_line(example.data['question'], 60)}'"
        content, faults = READING.read(answer, about)
        letter = content.strip()
        if letter == right:
            return Feedback(1.0, f"Correct: {right} answers {about}.")
        if not faults and letter not in tuple(LETTERS):
            fault = f"'{one_line(letter, 60)}' between the tags for {about} is not one of the four letters."
            faults = [f"The form is wrong: {fault}", ONLY_THE_LETTER]
        elif not faults:
            chosen = one_line(options[LETTERS.index(letter)], 100)
            faults = [f"The form is right, but {letter} ('{chosen}') does not answer {about}.", REASON_FIRST, RULE_OUT]
        if self.options.feedback == "reference":
            faults.append(f"The right option is {right} ('{one_line(options[LETTERS.index(right)], 200)}').")
        return Feedback(0.0, "\n".join(faults))

    def prepared(self, source: str, rows: list[Row]) -> list[Row]:
        # SciKnowEval mixes kinds of questions; rows that do not name theirs are taken at their word.
        chosen = [row for row in rows if str(row.get("type") or FOUR_OPTIONS) == FOUR_OPTIONS]
        domains = sorted({str(row["domain"]) for row in chosen if row.get("domain")})
        domain, levels = self.options.domain, self.options.levels
        chosen = [row for row in chosen if not domain or (row.get("domain") or domain) == domain]
        details = [row.get("details") for row in chosen]
        named = [each.get("level") if isinstance(each, Mapping) else None for each in details]
        chosen = [row for row, level in zip(chosen, named, strict=True) if not levels or level in levels]
        if not chosen:
            raise TaskError(
                f"'{source}' has no question with four options, domain {self.options.domain!r} and "
                f"levels {', '.join(self.options.levels) or 'any'}; its domains are: {', '.join(domains) or 'none'}"
            )
        require_columns(source, chosen, dict.fromkeys(("question", "choices", "answerKey"), "path"))
        return [self._question(source, row) for row in chosen]

    def _question(self, source: str, row: Row) -> Row:
        labels, texts = _choices(row["choices"])
        question, key = str(row["question"]).strip(), str(row["answerKey"]).strip()
        problem = ""
        if len(texts) != len(LETTERS) or len(labels) != len(LETTERS):
            problem = f"has {len(texts)} options; expected {len(LETTERS)}, each with a label and a text"
        elif len(set(texts)) < len(texts):
            problem = "has the same option twice"
        elif key not in labels:
            problem = f"has the answerKey '{row['answerKey']}', which is none of its labels {', '.join(labels)}"
        if problem:
            raise TaskError(f"'{source}': the question '{one_line(question, 60)}' {problem}; correct or remove it")
        right = texts[labels.index(key)]
        name = content_id([question, sorted(texts)])
        if not any(_REFERS.search(text) for text in texts):
            # A generator of its own per question: the order stays the same whatever other rows there are.
            texts = random.Random(f"physics/{self.options.seed}/{name}").sample(sorted(texts), len(texts))
        return {"id": name, "question": question, "options": texts, "right": LETTERS[texts.index(right)]}


def _choices(choices: Any) -> tuple[list[str], list[str]]:
    """Labels and texts, from SciKnowEval's pair of lists or from a list of options."""
    if isinstance(choices, Mapping):
        labels, texts = choices.get("label") or [], choices.get("text") or []
    elif isinstance(choices, Sequence) and all(isinstance(choice, Mapping) for choice in choices):
        labels, texts = [choice.get("label") for choice in choices], [choice.get("text") for choice in choices]
    else:
        labels, texts = [], []
    return [str(label).strip() for label in labels], [str(text).strip() for text in texts]
