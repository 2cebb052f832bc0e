"""A task from the user's own rows: a file or a hub dataset, a prompt template and a grader, all named in the recipe."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from fastslow.errors import TaskError
from fastslow.tasks.base import Example, Feedback, Message, Options, QuestionTask, Split
from fastslow.tasks.grader import call_grader, exact_match, load_grader
from fastslow.tasks.rows import Row, is_file, read_rows

_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]+)\}")


class DatasetOptions(Options):
    path: str
    """A `.jsonl`, `.json`, `.csv` or `.parquet` file, or the id of a dataset on the Hugging Face hub."""
    subset: str | None = None
    """Hub dataset: its subset (configuration)."""
    train_split: str = "train"
    """Hub dataset: the split to train on."""
    validation_split: str | None = None
    """Hub dataset: the split to validate on."""
    test_split: str | None = None
    """Hub dataset: the split to test on."""
    validation_path: str | None = None
    """A file of validation rows."""
    test_path: str | None = None
    """A file of test rows."""
    holdout: float = Field(default=0.1, ge=0, lt=0.5)
    """Share of the training rows set aside for validation, and as many again for test, where no file or split is named
    for them. Chosen by a hash of the row's id, so their order in the file does not matter; 0 sets nothing aside."""
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
    """`module:function` in the current folder, called with the answer and the row, returning a score from 0 to 1, a
    (score, text) tuple or a Feedback; without one, the answer must equal the answer column."""

    @model_validator(mode="after")
    def _agrees(self) -> DatasetOptions:
        for split in ("validation", "test"):
            if getattr(self, f"{split}_path") and getattr(self, f"{split}_split"):
                raise ValueError(
                    f"{split}_path and {split}_split both say where the {split} rows are; keep one of them"
                )
        if is_file(self.path):
            for name in ("subset", "validation_split", "test_split"):
                if getattr(self, name):
                    raise ValueError(
                        f"{name} belongs to a hub dataset, but path='{self.path}' is a file; remove {name}"
                    )
        return self


class DatasetTask(QuestionTask):
    """Questions and answers of your own, from a file or the Hugging Face hub."""

    Options = DatasetOptions
    options: DatasetOptions

    def __init__(self, options: DatasetOptions) -> None:
        super().__init__(options)
        self.seed_text = options.seed_text
        self._prompt = options.prompt or f"{{{options.question}}}"
        # Everything is read now, so that a mistake shows before a model is loaded.
        self._grader = load_grader(options.grader) if options.grader else None
        self._examples = _name(self._split_rows(), self._row_id)

    def examples(self, split: Split) -> Sequence[Example]:
        return self._examples[split]

    def messages(self, example: Example) -> list[Message]:
        question: Message = {"role": "user", "content": _fill(self._prompt, example.data)}
        return [{"role": "system", "content": self.options.system}, question] if self.options.system else [question]

    def grade(self, example: Example, answer: str) -> Feedback:
        if self._grader is None:
            return exact_match(answer, _as_text(example.data[self.options.answer]))
        return call_grader(str(self.options.grader), self._grader, answer, dict(example.data))

    def _split_rows(self) -> dict[Split, list[Row]]:
        options = self.options
        rows: dict[Split, list[Row]] = {"train": self._read(options.path, options.train_split)}
        if options.validation_path or options.validation_split:
            rows["validation"] = self._read(options.validation_path or options.path, options.validation_split)
        if options.test_path or options.test_split:
            rows["test"] = self._read(options.test_path or options.path, options.test_split)
        if options.holdout:
            rows = _hold_out(rows, options.holdout, self._row_id)
        if not rows["train"]:
            raise TaskError(
                f"'{options.path}' has too few rows to set some aside and still train; "
                "add rows, give validation_path and test_path, or set holdout to 0"
            )
        return rows

    def _read(self, source: str, split: str | None) -> list[Row]:
        rows = read_rows(source, self.options.subset, split or "train")
        options = self.options
        used = dict.fromkeys(_fields(self._prompt), "prompt" if options.prompt else "question")
        if self._grader is None:
            used[options.answer] = "answer"
        if options.id:
            used[options.id] = "id"
        for number, row in enumerate(rows, 1):
            for column, option in used.items():
                if row.get(column) is None:
                    raise TaskError(_missing(source, number, column, option, row))
        return rows

    def _row_id(self, row: Row) -> str:
        if self.options.id:
            return str(row[self.options.id])
        content = json.dumps(row, sort_keys=True, default=str)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def _hold_out(rows: dict[Split, list[Row]], share: float, row_id: Callable[[Row], str]) -> dict[Split, list[Row]]:
    """Move a share of the training rows to each split that has none; rows of one id always stay together."""
    ids = sorted({row_id(row) for row in rows["train"]}, key=lambda name: hashlib.sha256(name.encode()).digest())
    count = max(1, round(share * len(ids)))
    places: dict[Split, list[str]] = {"validation": ids[:count], "test": ids[count : 2 * count]}
    moved: dict[str, Split] = {name: split for split, names in places.items() if split not in rows for name in names}
    result: dict[Split, list[Row]] = {**rows, "train": []}
    for row in rows["train"]:
        result.setdefault(moved.get(row_id(row), "train"), []).append(row)
    return result


def _name(rows: dict[Split, list[Row]], row_id: Callable[[Row], str]) -> dict[Split, list[Example]]:
    taken: set[str] = set()
    examples: dict[Split, list[Example]] = {"train": [], "validation": [], "test": []}
    for split, named in examples.items():
        for row in rows.get(split, []):
            base = name = row_id(row)
            copies = 1
            while name in taken:
                copies += 1
                name = f"{base}-{copies}"
            taken.add(name)
            named.append(Example(name, row))
    return examples


def _missing(source: str, number: int, column: str, option: str, row: Row) -> str:
    if column in row:
        return f"'{source}' row {number} has no value in column '{column}', which the task's {option} needs; fill it in"
    advice = "write {{ and }} for plain braces" if option == "prompt" else f"set {option} to one of them"
    columns = ", ".join(row)
    return (
        f"'{source}' row {number} has no column '{column}', which the task's {option} names; it has {columns}; {advice}"
    )


def _fields(template: str) -> list[str]:
    return [field for field in _FIELD.findall(template) if field]


def _fill(template: str, row: Mapping[str, Any]) -> str:
    """Not str.format, so that an empty pair of braces, as in \\boxed{}, stays as it is."""

    def value(match: re.Match[str]) -> str:
        return _as_text(row[match[1]]) if match[1] else match[0][0]

    return _FIELD.sub(value, template)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
