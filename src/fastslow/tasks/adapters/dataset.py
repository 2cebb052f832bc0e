"""A task from the user's own rows, a prompt template and a grader: Python objects, or a file or hub dataset that the recipe
names. The grader is a function found by name and called with care, or else an exact match."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from pydantic import ValidationError

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.registry import load_named
from fastslow.base.text import one_line, quoted
from fastslow.tasks.base import Example, Feedback, Message, QuestionTask, Split, is_number, within
from fastslow.tasks.data import (
    ListedTask,
    Row,
    SourceOptions,
    complete_splits,
    content_id,
    name_examples,
    read_splits,
    require_columns,
)

JUDGES = 32
"""Answers graded at a time with `grader_threads`: such graders wait for a server and hardly use the processor."""

Grader = Callable[[str, dict[str, Any]], Any]

ANSWER_SOMETHING = "Always give an answer."
ONLY_THE_ANSWER = "Write only the final answer, with no words, label or punctuation around it."
EXACT_WRITING = "Write the answer exactly as asked for, down to capital letters and punctuation."
CHECK_FIRST = "Work the answer out and check it against the question before writing it."


class GraderError(TaskError):
    """A user's grader failed or returned something that is not a score."""


def load_grader(name: str) -> Grader:
    """The function `module:function`."""
    function = load_named("grader", name)
    if not callable(function):
        raise TaskError(
            f"grader '{name}' is of type {type(function).__name__}; expected a function of (answer, example)"
        )
    return function


def call_grader(
    name: str, grader: Grader, answer: str, example: dict[str, Any]
) -> Feedback | Coroutine[Any, Any, Feedback]:
    """Grade with a user's function and turn what it returns into feedback, or say what is wrong with it. The feedback of
    an async function is awaited by the caller."""
    with blaming(f"grader '{name}'"):
        returned = grader(answer, example)
    return _awaited(name, returned) if inspect.isawaitable(returned) else _checked(name, returned)


async def _awaited(name: str, returned: Awaitable[Any]) -> Feedback:
    with blaming(f"grader '{name}'"):
        score = await returned
    return _checked(name, score)


@contextmanager
def blaming(what: str, kind: type[TaskError] = GraderError) -> Iterator[None]:
    """A user's code can fail in any way, which costs one answer; what a recipe must change would fail every time."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{what}: {error}") from None
    except Exception as error:
        raise kind(f"{what} raised {type(error).__name__}: {one_line(error)}") from error


def _checked(name: str, returned: Any) -> Feedback:
    feedback = _as_feedback(returned)
    if feedback is None:
        raise GraderError(
            f"grader '{name}' returned {quoted(returned, 200)}; expected a score, a (score, text) tuple or a Feedback"
        )
    score = within(feedback.score)
    if score is None:
        raise GraderError(
            f"grader '{name}' returned the score {quoted(feedback.score, 100)}; expected a number from 0 to 1"
        )
    return replace(feedback, score=score)


def _as_feedback(returned: Any) -> Feedback | None:
    if isinstance(returned, Feedback):
        feedback = returned
    elif isinstance(returned, tuple) and len(returned) == 2:
        feedback = Feedback(*returned)
    else:
        feedback = Feedback(returned)
    words = feedback.by_component
    if not is_number(feedback.score) or not isinstance(words, Mapping):
        return None
    if not all(isinstance(said, str) for said in (feedback.text, *words.values())):
        return None
    return Feedback(feedback.score, feedback.text, words, progress=feedback.progress)


def exact_match(answer: str, expected: str, question: str, reveal: bool = False) -> Feedback:
    """1 when the answer is the expected one but for white space around it; otherwise says in what way it is not.

    The expected answer itself is only said when asked to `reveal` it.
    """
    given, expected, asked = answer.strip(), expected.strip(), f"'{one_line(question, 60)}'"
    shown = f"'{one_line(given, 200)}'"
    if given == expected:
        return Feedback(1.0, f"Correct: {shown} answers {asked}.")
    if not given:
        lines = [f"The answer to {asked} is empty.", ANSWER_SOMETHING]
    elif _bare(given) == _bare(expected):
        lines = [f"{shown} is the answer to {asked}, but not as it is to be written.", EXACT_WRITING]
    elif _mentions(given, expected):
        lines = [f"{shown} has more in it than the answer to {asked}.", ONLY_THE_ANSWER]
    else:
        lines = [f"{shown} is not the answer to {asked}.", CHECK_FIRST, ONLY_THE_ANSWER]
    if reveal:
        lines.append(f"The expected answer is '{one_line(expected, 200)}'.")
    return Feedback(0.0, "\n".join(lines))


def _bare(text: str) -> str:
    return text.casefold().strip(" .!\"'`*")


def _mentions(text: str, expected: str) -> bool:
    """Whether the expected answer stands somewhere in the text as a word of its own: 5 is not in 15, -5 or 5.2."""
    whole = rf"(?<![\w.-]){re.escape(expected)}(?!\w|\.\d)"
    return bool(expected) and re.search(whole, text, re.IGNORECASE) is not None


_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


class DatasetOptions(SourceOptions):
    question: str = "question"
    """The column that holds the question."""
    answer: str = "answer"
    """The column that holds the expected answer; a grader of your own may do without it."""
    id: str | None = None
    """The column that names a row; without one, rows are named by a hash of their content."""
    prompt: str | None = None
    """What the model is asked, with `{column}` for a row's values and `{{` `}}` for braces; by default the question."""
    system: str | None = None
    """A system message of the task's own; the context is merged into it."""
    seed_text: str = QuestionTask.seed_text
    """The text the context starts from."""
    grader: str | None = None
    """`module:function` in the current folder, plain or async, called with the answer and the row. It returns a score from
    0 to 1, a (score, text) tuple or a Feedback. Without one, the answer must equal the answer column."""
    grader_threads: bool = False
    """Call the grader in threads, several at once. For one that blocks, such as a judge behind a server: the other rollouts
    then proceed while it waits. It must be safe in threads; an async grader does not need them."""
    feedback: Literal["advice", "reference"] = "advice"
    """Without a grader: `reference` adds the expected answer to the feedback on wrong answers, from where it can reach the
    contexts."""


class RowsTask(ListedTask, QuestionTask):
    """Rows and a grader of your own, given as Python objects.

    `rows` is a list of dicts, a `datasets.Dataset` or a DataFrame. `grader(answer, row)` returns a score from 0 to 1, a
    (score, text) tuple or a `Feedback`, and may be async; without one, the answer must equal the column `answer`. `prompt`
    is what the model is asked, with `{column}` for a row's values; by default the column `question`. `seed_text` is the text
    the context starts from. Where no rows are given for validation or test, a share of `rows`, `holdout`, is held out for
    it. The remaining arguments are the options of the task `dataset`.
    """

    options: DatasetOptions

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        grader: Grader | None = None,
        *,
        validation: Iterable[Mapping[str, Any]] | None = None,
        test: Iterable[Mapping[str, Any]] | None = None,
        question: str = "question",
        answer: str = "answer",
        id: str | None = None,
        prompt: str | None = None,
        system: str | None = None,
        seed_text: str = QuestionTask.seed_text,
        holdout: float = 0.1,
        grader_threads: bool = False,
        feedback: Literal["advice", "reference"] = "advice",
    ) -> None:
        columns: dict[str, Any] = {"question": question, "answer": answer, "id": id, "prompt": prompt, "system": system}
        others = {"seed_text": seed_text, "holdout": holdout, "grader_threads": grader_threads, "feedback": feedback}
        try:
            options = DatasetOptions.model_validate({"path": "rows", **others, **columns})
        except ValidationError as error:
            wrong = error.errors()[0]
            raise TaskError(f"{wrong['loc'][0]}={quoted(wrong['input'], 60)}: {one_line(wrong['msg'])}") from None
        if grader is not None and not callable(grader):
            raise TaskError(f"grader is of type {type(grader).__name__}; expected a function of (answer, row)")
        self._set_up(options, grader, getattr(grader, "__name__", type(grader).__name__))
        given: dict[Split, list[Row]] = {"train": self._checked("rows", _rows("rows", rows))}
        if validation is not None:
            given["validation"] = self._checked("validation", _rows("validation", validation))
        if test is not None:
            given["test"] = self._checked("test", _rows("test", test))
        self._examples = name_examples(complete_splits(given, holdout, self._asked, "rows"), self._row_id)

    def _set_up(self, options: DatasetOptions, grader: Grader | None, name: str) -> None:
        """Everything but the rows."""
        super().__init__(options)
        self.seed_text = options.seed_text
        self.grades_apart = options.grader_threads
        self.grades_at_once = JUDGES
        self._prompt = options.prompt or f"{{{options.question}}}"
        self._grader, self._grader_name = grader, name

    def messages(self, example: Example) -> list[Message]:
        question: Message = {"role": "user", "content": _fill(self._prompt, example.data)}
        return [{"role": "system", "content": self.options.system}, question] if self.options.system else [question]

    def grade(self, example: Example, answer: str) -> Feedback | Awaitable[Feedback]:
        if self._grader is None:
            expected, asked = example.data[self.options.answer], _fill(self._prompt, example.data)
            return exact_match(answer, _as_text(expected), asked, self.options.feedback == "reference")
        return call_grader(self._grader_name, self._grader, answer, dict(example.data))

    def _checked(self, source: str, rows: list[Row]) -> list[Row]:
        options = self.options
        fields = filter(None, _FIELD.findall(self._prompt))
        used = dict.fromkeys(fields, "prompt" if options.prompt else "question")
        if self._grader is None:
            used[options.answer] = "answer"
        if options.id:
            used[options.id] = "id"
        require_columns(source, rows, used)
        return rows

    def _asked(self, row: Row) -> str:
        return content_id(_fill(self._prompt, row))

    def _row_id(self, row: Row) -> str:
        return str(row[self.options.id]) if self.options.id else content_id(row)


class DatasetTask(RowsTask):
    """Questions and answers of your own, from a file or the Hugging Face hub."""

    Options = DatasetOptions

    def __init__(self, options: DatasetOptions) -> None:
        # Everything is read now, so that a mistake shows before a model is loaded.
        self._set_up(options, load_grader(options.grader) if options.grader else None, str(options.grader))
        self._examples = name_examples(read_splits(options, self._checked, self._asked), self._row_id)


def _rows(source: str, given: Any) -> list[Row]:
    """The rows of a list, a dataset or a DataFrame."""
    rows = given.to_dict("records") if hasattr(given, "iterrows") else given
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise TaskError(
            f"{source} is of type {type(given).__name__}; expected a list of dicts, a datasets.Dataset or a DataFrame"
        )
    found = list(rows)
    for number, row in enumerate(found, 1):
        if not isinstance(row, Mapping):
            raise TaskError(
                f"{source} row {number} is of type {type(row).__name__}; expected a dict with the columns as keys"
            )
    if not found:
        raise TaskError(f"{source} is empty; expected at least one problem")
    return [dict(row) for row in found]


def _fill(template: str, row: Mapping[str, Any]) -> str:
    """Not str.format, so that an empty pair of braces, as in \\boxed{}, stays as it is."""

    def value(match: re.Match[str]) -> str:
        return _as_text(row[match[1]]) if match[1] else match[0][0]

    return _FIELD.sub(value, template)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
