"""Where problems come from: rows of files or of a hub dataset, with what is not given for validation and test held out, or
generated when asked for. A generated problem belongs to one split, whatever its seed, so that splits never share one."""

from __future__ import annotations

import csv
import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, overload

from pydantic import Field, model_validator

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line, quoted
from fastslow.tasks.base import Example, Options, QuestionTask, Split, Task

Row = dict[str, Any]


def is_file(source: str) -> bool:
    """Whether a source names a file rather than a hub dataset: by its ending, so that a missing file is still one."""
    return Path(source).suffix.lower() in _READERS or Path(source).expanduser().is_file()


def read_rows(source: str, subset: str | None = None, split: str = "train") -> list[Row]:
    """All rows of a file, or of one split of a hub dataset."""
    rows = _read_file(source) if is_file(source) else _read_hub(source, subset, split)
    if not rows:
        where = f"'{source}'" if is_file(source) else f"split '{split}' of dataset '{source}'"
        raise TaskError(f"{where} has no rows; expected at least one problem")
    return rows


def _read_file(source: str) -> list[Row]:
    path = Path(source).expanduser()
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise TaskError(f"'{source}' is not a kind of file that can be read; expected one of {', '.join(_READERS)}")
    if path.exists() and not path.is_file():
        raise TaskError(f"'{source}' is not a regular file; expected a {', '.join(_READERS)} file")
    try:
        return reader(path)
    except FileNotFoundError:
        raise TaskError(
            f"there is no data file '{source}' (looked in {Path.cwd()}); give the path of a {', '.join(_READERS)} file"
        ) from None
    except UnicodeDecodeError as error:
        raise TaskError(
            f"'{source}' is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8"
        ) from None
    except OSError as error:
        raise TaskError(f"'{source}' cannot be read: {one_line(error)}") from None


def _read_hub(source: str, subset: str | None, split: str) -> list[Row]:
    import datasets

    try:
        return [dict(row) for row in datasets.load_dataset(source, subset, split=split)]
    except Exception as error:  # the library raises a dozen unrelated types, its network layer some more
        asked = f"dataset '{source}'" + (f", subset '{subset}'" if subset else "") + f", split '{split}'"
        raise TaskError(
            f"{asked} cannot be loaded ({type(error).__name__}: {one_line(error)}); expected the path of a "
            f"{', '.join(_READERS)} file or the id of a dataset on the Hugging Face hub"
        ) from error


def _read_json(path: Path) -> list[Row]:
    """A list of objects, or one object a line: many files called .json are really the latter."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".jsonl" or not text.lstrip().startswith("["):
        return [
            _expect_object(path, f"line {number}", _parsed(path, line, number, "one object a line"))
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
    items = _parsed(path, text, None, "a list of objects")
    return [_expect_object(path, f"item {number}", item) for number, item in enumerate(items, 1)]


def _parsed(path: Path, text: str, number: int | None, expected: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line, what = number or error.lineno, error.msg
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists in lists
        line, what = number or 1, one_line(error, 100)
    raise TaskError(f"'{path}' line {line} is not valid JSON: {what}; expected {expected}")


def _expect_object(path: Path, where: str, item: Any) -> Row:
    if not isinstance(item, dict):
        raise TaskError(
            f"'{path}' {where} is of type {type(item).__name__}; expected an object with the columns as keys"
        )
    return item


def _read_csv(path: Path) -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        rows = []
        try:
            names = reader.fieldnames or ()
            if twice := [name for place, name in enumerate(names) if name in names[:place]]:
                raise TaskError(f"'{path}' has the column {quoted(twice[0], 60)} twice; rename one of them")
            for row in reader:
                if None in row:  # where the csv module puts cells beyond the header
                    raise TaskError(
                        f"'{path}' line {reader.line_num} has more cells than the header has columns; "
                        "put quotes around cells that hold commas"
                    )
                rows.append(dict(row))
        except csv.Error as error:
            raise TaskError(
                f"'{path}' cannot be read as CSV after line {reader.line_num}: {error}; save it as JSONL or parquet"
            ) from None
    return rows


def _read_parquet(path: Path) -> list[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        rows: list[Row] = parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise TaskError(f"'{path}' is not a readable parquet file: {one_line(error)}") from None
    return rows


_READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": _read_json,
    ".json": _read_json,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}


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
            f"'{source}' has too few different rows to hold some out and still train; "
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
                f"{', '.join(map(str, row))}; {advice}"
            )


def content_id(content: Any) -> str:
    """A short name for a value: the same content has the same name in every process and every run."""
    try:
        text = content if isinstance(content, str) else json.dumps(content, sort_keys=True, default=str)
    except (ValueError, TypeError, RecursionError) as error:
        raise TaskError(f"a problem cannot be written as JSON: {one_line(error)}; give it plain values") from None
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def hold_out(rows: dict[Split, list[Row]], share: float, key: Callable[[Row], str]) -> dict[Split, list[Row]]:
    """Move a share of the training rows to each split that has none; rows of one key always stay together. `key` is called
    once for every row, in their order."""
    named = [(key(row), row) for row in rows["train"]]
    keys = sorted(
        {name for name, _ in named},
        key=lambda name: hashlib.sha256(name.encode("utf-8", "backslashreplace")).digest(),
    )
    count = max(1, round(share * len(keys)))
    places: dict[Split, list[str]] = {"validation": keys[:count], "test": keys[count : 2 * count]}
    moved: dict[str, Split] = {name: split for split, names in places.items() if split not in rows for name in names}
    result: dict[Split, list[Row]] = {**rows, "train": []}
    for name, row in named:
        result.setdefault(moved.get(name, "train"), []).append(row)
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

    def prepared(self, source: str, rows: list[Row]) -> list[Row]:
        """The rows of a source to keep, by default all; or refuse them."""
        return rows

    def name(self, row: Row) -> str:
        """A problem's id, the same in every file that has it."""
        return str(row["id"])

    def key(self, row: Row) -> str:
        """Rows that have the same are held out together."""
        return self.name(row)


TRIES = 1000
"""Draws before a split is reported to have no problems."""


class LazyExamples(Sequence[Example]):
    """As many problems as `size`, the one at a position made by `make(position)`, always the same."""

    def __init__(self, size: int, make: Callable[[int], Example]) -> None:
        self._positions = range(size)
        self._make = make

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self._make(position) for position in self._positions[index]]
        return self._make(self._positions[index])


class GeneratedOptions(Options):
    train: int = Field(default=2000, ge=1)
    """Training problems."""
    validation: int = Field(default=200, ge=1)
    """Validation problems."""
    test: int = Field(default=200, ge=1)
    """Test problems."""
    seed: int = 0
    """Another seed makes other problems by the same rules."""


class GeneratedTask(QuestionTask):
    """A task that makes its problems one by one: its options say how many each split has."""

    def examples(self, split: Split) -> Sequence[Example]:
        return LazyExamples(getattr(self.options, split), partial(self._example, split))

    @abstractmethod
    def _example(self, split: Split, index: int) -> Example: ...


def split_of(shown: object) -> Split:
    """The one split in which a generated problem may stand, by what it shows: half of all are for training."""
    splits: tuple[Split, ...] = ("validation", "test", "train", "train")
    return splits[int(content_id(shown), 16) % len(splits)]


def draw_for(split: Split, draw: Callable[[], Example], shown: Callable[[Example], object]) -> Example:
    """The first problem drawn that belongs to the split."""
    for _ in range(TRIES):
        example = draw()
        if split_of(shown(example)) == split:
            return example
    raise TaskError(
        f"of {TRIES} problems drawn none belongs to {split}; choose options under which there are more different problems"
    )
