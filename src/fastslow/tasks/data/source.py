"""Where the rows of a task come from: files or a hub dataset, with what is not given for validation and test held out; and
the problems that they become."""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Example, Options, Split, Task
from fastslow.tasks.data.rows import Row, is_file, read_rows


class SourceOptions(Options):
    """The options of every task that is made from rows. A family with a dataset of its own names it in `hub`."""

    hub: ClassVar[Mapping[str, str]] = {}

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
    """Share of the training rows held out for validation, and as many again for test, where no file or split is named
    for them. Chosen by a hash of what is asked, so that their order in the file does not matter and rows that ask the same
    stay together; 0 holds nothing out."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: Any) -> Any:
        """Subset and splits of the family's own dataset, unless another one is named: they would not fit that."""
        if not isinstance(given, Mapping) or not cls.hub or given.get("path", cls.hub["path"]) != cls.hub["path"]:
            return given
        replaced = {f"{split}_split" for split in ("validation", "test") if given.get(f"{split}_path")}
        return {**{name: value for name, value in cls.hub.items() if name not in replaced}, **given}

    @model_validator(mode="after")
    def _agrees(self) -> SourceOptions:
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


def read_splits(
    options: SourceOptions, prepare: Callable[[str, list[Row]], list[Row]], key: Callable[[Row], str]
) -> dict[Split, list[Row]]:
    """The rows of every split. `prepare` is given a source and its rows, and returns those to keep or refuses them; rows
    that have the same `key` are held out together."""

    def read(source: str, split: str | None) -> list[Row]:
        return prepare(source, read_rows(source, options.subset, split or "train"))

    rows: dict[Split, list[Row]] = {"train": read(options.path, options.train_split)}
    if options.validation_path or options.validation_split:
        rows["validation"] = read(options.validation_path or options.path, options.validation_split)
    if options.test_path or options.test_split:
        rows["test"] = read(options.test_path or options.path, options.test_split)
    return complete_splits(rows, options.holdout, key, options.path)


def complete_splits(
    rows: dict[Split, list[Row]], share: float, key: Callable[[Row], str], source: str
) -> dict[Split, list[Row]]:
    """Hold rows out for the splits that have none, and make sure that something is left to train on."""
    if share:
        rows = hold_out(rows, share, key)
    if not rows["train"]:
        raise TaskError(
            f"'{source}' has too few rows to hold some out and still train; "
            "add rows, give validation_path and test_path, or set holdout to 0"
        )
    return rows


def require_columns(source: str, rows: list[Row], columns: Mapping[str, str]) -> None:
    """Refuse rows that lack a value in one of the columns, given with the option that names each."""
    for number, row in enumerate(rows, 1):
        for column, option in columns.items():
            if row.get(column) is not None:
                continue
            if column in row:
                raise TaskError(
                    f"'{source}' row {number} has no value in column '{column}', which the task's {option} needs; fill it in"
                )
            advice = "write {{ and }} for plain braces" if option == "prompt" else f"set {option} to one of them"
            raise TaskError(
                f"'{source}' row {number} has no column '{column}', which the task's {option} names; it has "
                f"{', '.join(row)}; {advice}"
            )


def content_id(content: Any) -> str:
    """A short name for a value: the same content has the same name in every process and every run."""
    text = content if isinstance(content, str) else json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def hold_out(rows: dict[Split, list[Row]], share: float, key: Callable[[Row], str]) -> dict[Split, list[Row]]:
    """Move a share of the training rows to each split that has none; rows of one key always stay together."""
    keys = sorted(
        {key(row) for row in rows["train"]},
        key=lambda name: hashlib.sha256(name.encode("utf-8", "backslashreplace")).digest(),
    )
    count = max(1, round(share * len(keys)))
    places: dict[Split, list[str]] = {"validation": keys[:count], "test": keys[count : 2 * count]}
    moved: dict[str, Split] = {name: split for split, names in places.items() if split not in rows for name in names}
    result: dict[Split, list[Row]] = {**rows, "train": []}
    for row in rows["train"]:
        result.setdefault(moved.get(key(row), "train"), []).append(row)
    return result


def name_examples(rows: dict[Split, list[Row]], row_id: Callable[[Row], str]) -> dict[Split, list[Example]]:
    """A problem for every row; a name that is taken gets a number after it."""
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


class ListedTask(Task):
    """A task whose problems are all in memory."""

    _examples: Mapping[Split, Sequence[Example]]

    def examples(self, split: Split) -> Sequence[Example]:
        return self._examples[split]


class RowTask(ListedTask):
    """A task whose problems are the rows of its source."""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._examples = name_examples(read_splits(options, self.prepared, self.key), self.name)

    @abstractmethod
    def prepared(self, source: str, rows: list[Row]) -> list[Row]:
        """The rows of a source to keep; or refuse them."""

    @abstractmethod
    def name(self, row: Row) -> str:
        """A problem's id, the same in every file that has it."""

    def key(self, row: Row) -> str:
        """Rows that have the same are held out together."""
        return self.name(row)
