"""Dividing rows into train, validation and test, and giving every problem its name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from fastslow.tasks.base import Example, Split
from fastslow.tasks.data.rows import Row


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
