"""HoVer: a claim, what a first keyword search found, and ONE more query that must find the rest of the pages it rests on. The
search is over a file of passages: a BM25 index, built once and memory-mapped."""

from __future__ import annotations

import hashlib
import html
import json
import unicodedata
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from fastslow.base.cache import made_once
from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import SYSTEM, Ask, Component, Example, Feedback, Message, require_package
from fastslow.tasks.data import Row, RowTask, SourceOptions, content_id, require_columns
from fastslow.tasks.reading import Reading, has_fence, last_fenced

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


# Advice that holds for every claim, each a whole sentence; what is true of one claim goes on lines of its own.
WRITE_A_BLOCK = "Write the search query in a fenced block: a line with ```, the query, and a line with ```."
CLOSE_THE_BLOCK = "Close the fenced block with ``` right after the query."
USE_WORDS = "Use names and other rare words in the query, because common words find nothing."
NAME_WHAT_IS_MISSING = (
    "Put into the query the names of the pages that are still missing, as their titles would write them."
)
FOLLOW_THE_LINK = (
    "Work out from the found pages whom or what the claim means where it gives no name, and search for that name."
)
NOT_THE_CLAIM = "Do not repeat the claim in the query, because the first search was made with it."
EVERY_MISSING_PAGE = "Cover every missing page with the one query: give each of them a few words of its own."
KEEP_NAMES = "Keep in the summary every name, title and date that the passages give, and say what is still unknown."

READING = Reading(
    last_fenced,
    has_fence,
    missing=("There is no fenced block with a query for the claim '%s'.", WRITE_A_BLOCK),
    unclosed=("The fenced block for the claim '%s' is never closed.", CLOSE_THE_BLOCK),
    empty=("The fenced block for the claim '%s' is empty.", WRITE_A_BLOCK),
)
SUMMARISE, QUERY = "summarise", "query"


class HoverOptions(SourceOptions):
    hub: ClassVar[Mapping[str, str]] = {"path": "vincentkoc/hover-parquet", "test_split": "validation"}

    path: str = hub["path"]
    """The claims: a file in HoVer's own format, or a hub dataset; by default HoVer on the hub."""
    passages_path: str
    """The pages that are searched: a JSONL file with `title` and `text`. Its index is built once, then cached."""
    hops: tuple[int, ...] = (3, 4)
    """Only claims that rest on so many pages: (3, 4) is the hard subset, (2, 3, 4) is everything."""
    results: int = Field(default=10, ge=1)
    """Pages that each of the two searches finds."""
    program: Literal["query", "summarise-query"] = "query"
    """`query` asks once, with titles and first sentences as the summary. `summarise-query` asks twice: the component
    `summarise` reads the found passages, the component `query` sees its summary; their contexts evolve separately."""
    passage_length: int = Field(default=600, ge=50)
    """Characters of each found passage shown to `summarise`."""
    feedback: Literal["pages", "advice"] = "pages"
    """`pages` names the pages that are still missing, and they can then appear in contexts; `advice` counts them."""


class Hover(RowTask):
    """Write the one query that finds the pages a claim rests on and a first search missed."""

    Options = HoverOptions
    options: HoverOptions

    def __init__(self, options: HoverOptions) -> None:
        self._passages = Passages(options.passages_path)
        super().__init__(options)

    @property
    def components(self) -> Sequence[Component]:
        query = "Write one search query that finds the pages still missing."
        if self.options.program == "query":
            return [Component(SYSTEM, seed=query)]
        summary = "Summarise what the passages say about the claim."
        return [Component(SUMMARISE, seed=summary), Component(QUERY, seed=query)]

    def name(self, row: Row) -> str:
        return str(row.get("uid") or content_id(str(row["claim"])))

    def key(self, row: Row) -> str:
        # Claims made from one question share its pages, so they go into one split.
        return str(row.get("hpqa_id") or content_id(str(row["claim"])))

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        claim = str(example.data["claim"])
        first = self._passages.search(claim, self.options.results)
        if self.options.program == "query":
            # Titles with first sentences are the summary where no model writes one.
            lines = [f"- {each.title}: {one_line(each.text.partition('. ')[0], 200)}" for each in first]
            answer = yield Ask(SYSTEM, _ask_query(claim, "\n".join(lines) or "(nothing)"))
        else:
            shown = "\n\n".join(f"{each.title}\n{one_line(each.text, self.options.passage_length)}" for each in first)
            question = (
                f"Claim: {claim}\n\nA keyword search with the claim found these passages:\n\n{shown or '(nothing)'}\n\n"
                "Summarise what they say about the claim, and what must still be looked up to check it."
            )
            summary = yield Ask(SUMMARISE, [{"role": "user", "content": question}])
            answer = yield Ask(QUERY, _ask_query(claim, summary.strip() or "(The summary is empty.)"))
        return self._grade(example, first, answer)

    def shown(self, example: Example) -> object:
        return str(example.data["claim"])  # what the first search adds follows from it

    def _grade(self, example: Example, first: Sequence[Passage], answer: str) -> Feedback:
        claim, gold = str(example.data["claim"]), example.data["pages"]
        block, faults = READING.read(answer, one_line(claim, 60))
        query = " ".join(block.split())
        second = self._passages.search(query, self.options.results) if query else ()
        if query and not second:
            faults = [f"The query '{one_line(query, 100)}' finds no page.", USE_WORDS]
        found = _titles(first) | _titles(second)
        missing = [page for page in gold if same_title(page) not in found]
        if not faults and not missing:
            return Feedback(1.0, f"Correct: {_list(gold)} are all found.")
        lines = [*self._facts(example, missing, first, query, second), *faults]
        if not faults and not _titles(second) - _titles(first):
            lines += [NOT_THE_CLAIM, NAME_WHAT_IS_MISSING]
        elif not faults:
            lines += [FOLLOW_THE_LINK, NAME_WHAT_IS_MISSING if len(missing) == 1 else EVERY_MISSING_PAGE]
        if self.options.program == "summarise-query":
            lines.append(KEEP_NAMES)
        return Feedback(0.0, "\n".join(lines))

    def _facts(
        self, example: Example, missing: list[str], first: Sequence[Passage], query: str, second: Sequence[Passage]
    ) -> list[str]:
        """What was found and what was not, in words that name the claim."""
        gold, named = example.data["pages"], self.options.feedback == "pages"
        by_claim = [page for page in gold if same_title(page) in _titles(first)]
        by_query = [page for page in gold if page not in by_claim and page not in missing]
        lines = [f"The claim is '{one_line(example.data['claim'], 200)}'."]
        if by_claim:
            lines.append(f"The first search found {_list(by_claim)}.")
        if second:
            others = [passage.title for passage in second if passage not in first][:3]
            instead = f"only {_list(others)}" if others else "nothing new"
            lines.append(f"The query '{one_line(query, 100)}' found {_list(by_query) if by_query else instead}.")
        if missing:
            lines.append(f"Still missing: {_list(missing) if named else f'{len(missing)} of {len(gold)} pages'}.")
        return lines

    def prepared(self, source: str, rows: list[Row]) -> list[Row]:
        require_columns(source, rows, {"claim": "path", "supporting_facts": "path"})
        claims = [{**row, "pages": _pages(source, number, row)} for number, row in enumerate(rows, 1)]
        claims = [row for row in claims if row.get("num_hops", len(row["pages"])) in self.options.hops]
        if not claims:
            raise TaskError(f"'{source}' has no claims with {_list(self.options.hops)} hops; change the option hops")
        # A page that is not there can never be found, and a reward that is always 0 teaches nothing.
        kept = [row for row in claims if all(self._passages.has(page) for page in row["pages"])]
        if not kept:
            absent = [page for page in claims[0]["pages"] if not self._passages.has(page)]
            raise TaskError(
                f"none of the {len(claims)} claims of '{source}' has all its pages in '{self.options.passages_path}' "
                f"(the first one lacks {_list(absent)}); give the passages the claims were made from"
            )
        return kept


def _pages(source: str, number: int, row: Row) -> list[str]:
    """The titles a claim rests on: HoVer writes pairs of title and sentence, the hub rows or columns of key and value."""
    facts: Any = row["supporting_facts"]
    try:
        titles = [
            fact if isinstance(fact, str) else fact["key"] if isinstance(fact, Mapping) else fact[0]
            for fact in (facts["key"] if isinstance(facts, Mapping) else facts)
        ]
    except (KeyError, IndexError, TypeError):
        titles = []
    if isinstance(facts, str) or not titles or not all(isinstance(title, str) for title in titles):
        raise TaskError(
            f"'{source}' row {number}: supporting_facts is {one_line(facts, 80)}; "
            "expected a list of [title, sentence number]"
        )
    return list(dict.fromkeys(titles))


def _ask_query(claim: str, summary: str) -> list[Message]:
    question = (
        f"Claim: {claim}\n\nA first keyword search with the claim was made. Summary of what it found:\n{summary}\n\n"
        "The claim rests on several encyclopedia pages, and some of them may be missing. Write ONE follow-up query for "
        "the keyword search that finds the missing pages. End your answer with the query in a fenced block:\n"
        "```\nthe query\n```"
    )
    return [{"role": "user", "content": question}]


def _titles(passages: Iterable[Passage]) -> set[str]:
    return {same_title(passage.title) for passage in passages}


def _list(items: Iterable[object]) -> str:
    return ", ".join(f"'{item}'" if isinstance(item, str) else str(item) for item in items)
