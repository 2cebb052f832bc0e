"""Keyword search over a file of passages: a BM25 index, built once and memory-mapped."""

from __future__ import annotations

import hashlib
import html
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastslow.base.cache import made_once
from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import require_package

FORMAT = 1
"""Raised when the way an index is built changes, so that those in the cache are built again."""
REMEMBERED = 20_000
"""Searches kept: the first one of a claim is the same in all its rollouts."""


@dataclass(frozen=True)
class Passage:
    """A page, or as much of it as the file holds."""

    title: str
    text: str


def same_title(title: str) -> str:
    """A title as it is compared: claims and passages write accents, ampersands and underscores in different ways."""
    return " ".join(unicodedata.normalize("NFC", html.unescape(title)).replace("_", " ").casefold().split())


class Passages:
    """The passages of a JSONL file with `title` and `text` (a text, or a list of sentences), found by keywords.

    Only word counts, offsets into the file and hashes of titles are kept, all memory-mapped: a passage is read from the
    file when it is found.
    """

    def __init__(self, file: str) -> None:
        require_package("hover", "bm25s", "bm25s")
        import bm25s
        import numpy

        self._path = Path(file).expanduser()
        folder = made_once("passages", _content_key(self._path), lambda to: _build(self._path, to))
        self._index = bm25s.BM25.load(folder, mmap=True)
        self._offsets = numpy.load(folder / "offsets.npy", mmap_mode="r")
        self._titles = numpy.load(folder / "titles.npy", mmap_mode="r")
        self.search = lru_cache(REMEMBERED)(self._search)

    def __len__(self) -> int:
        return len(self._offsets)

    def has(self, title: str) -> bool:
        """Whether a passage has that title."""
        import numpy

        wanted = numpy.uint64(_title_hash(title))
        place = int(numpy.searchsorted(self._titles, wanted))
        return place < len(self._titles) and bool(self._titles[place] == wanted)

    def _search(self, query: str, count: int) -> tuple[Passage, ...]:
        """The passages that fit the query best, at most `count`; those that share no word with it are left out."""
        import bm25s
        import numpy

        words = bm25s.tokenize([query], stopwords="en", return_ids=False, show_progress=False)[0]
        known = self._index.get_tokens_ids(words)
        if not known:
            return ()
        scores = self._index.get_scores_from_ids(known)
        candidates = numpy.flatnonzero(scores)
        if len(candidates) > count:
            bar = numpy.partition(scores[candidates], -count)[-count]
            candidates = candidates[scores[candidates] >= bar]
        # Ties go to the earlier passage, so that a search finds the same on every machine.
        order = numpy.lexsort((candidates, -scores[candidates]))[:count]
        return tuple(self._read(int(place)) for place in candidates[order])

    def _read(self, place: int) -> Passage:
        with self._path.open("rb") as lines:
            lines.seek(int(self._offsets[place]))
            return _passage(self._path, place + 1, lines.readline())


def _build(path: Path, folder: Path) -> None:
    import bm25s
    import numpy

    offsets, titles, texts = [], [], []
    for offset, passage in _all_passages(path):
        offsets.append(offset)
        titles.append(_title_hash(passage.title))
        texts.append(f"{passage.title} {passage.text}")
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    index.save(folder)
    numpy.save(folder / "offsets.npy", numpy.array(offsets, dtype=numpy.int64))
    numpy.save(folder / "titles.npy", numpy.sort(numpy.array(titles, dtype=numpy.uint64)))


def _all_passages(path: Path) -> Iterator[tuple[int, Passage]]:
    offset, found = 0, False
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield offset, _passage(path, number, line)
                found = True
            offset += len(line)
    if not found:
        raise TaskError(f"passage file '{path}' is empty; expected one JSON object with title and text a line")


def _passage(path: Path, number: int, line: bytes) -> Passage:
    try:
        row: Any = json.loads(line)
        title, text = row["title"], row["text"]
    except (ValueError, KeyError, TypeError) as error:
        raise TaskError(
            f"passage file '{path}' line {number} cannot be read ({type(error).__name__}: {one_line(error)}); "
            "expected a JSON object with title and text"
        ) from None
    return Passage(str(title), " ".join(map(str, text)) if isinstance(text, list) else str(text))


def _title_hash(title: str) -> int:
    return int.from_bytes(hashlib.sha256(same_title(title).encode()).digest()[:8])


def _content_key(path: Path) -> str:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TaskError(
            f"passage file '{path}' cannot be read ({one_line(error)}; looked in {Path.cwd()}); "
            "expected a JSONL file with title and text a line"
        ) from None
    return f"{digest[:16]}-{FORMAT}"
