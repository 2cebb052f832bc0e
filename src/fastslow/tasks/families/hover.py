"""HoVer: a claim, what a first keyword search found, and ONE more query that must find the rest of the pages it rests on."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line
from fastslow.tasks.base import SYSTEM, Ask, Component, Example, Feedback, Message
from fastslow.tasks.data.rows import Row
from fastslow.tasks.data.source import RowTask, SourceOptions, content_id, require_columns
from fastslow.tasks.families.passages import Passage, Passages, same_title
from fastslow.tasks.reading.answers import Reading, has_fence, last_fenced

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
            answer = yield Ask(SYSTEM, _ask_query(claim, _outline(first)))
        else:
            summary = yield Ask(SUMMARISE, _ask_summary(claim, first, self.options.passage_length))
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


def _ask_summary(claim: str, passages: Sequence[Passage], length: int) -> list[Message]:
    shown = "\n\n".join(f"{passage.title}\n{one_line(passage.text, length)}" for passage in passages)
    question = (
        f"Claim: {claim}\n\nA keyword search with the claim found these passages:\n\n{shown or '(nothing)'}\n\n"
        "Summarise what they say about the claim, and what must still be looked up to check it."
    )
    return [{"role": "user", "content": question}]


def _outline(passages: Sequence[Passage]) -> str:
    """Titles with first sentences: the summary where no model writes one."""
    lines = [f"- {passage.title}: {one_line(passage.text.partition('. ')[0], 200)}" for passage in passages]
    return "\n".join(lines) or "(nothing)"


def _titles(passages: Iterable[Passage]) -> set[str]:
    return {same_title(passage.title) for passage in passages}


def _list(items: Iterable[object]) -> str:
    return ", ".join(f"'{item}'" if isinstance(item, str) else str(item) for item in items)
