"""The task of a search: every problem asks for a better candidate than one of the archive."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from pydantic import Field

from fastslow.base.text import shorten
from fastslow.discover.archive import Archive, Candidate
from fastslow.discover.candidates import Form
from fastslow.discover.problem import Problem, load_problem
from fastslow.discover.search import Budget, Search
from fastslow.records import Example, Feedback
from fastslow.tasks.base import Message, Options, QuestionTask, Split
from fastslow.tasks.data import LazyExamples

PROBLEMS = 100_000
SHOWN = 20_000
"""Characters of a candidate that a problem shows beside the parent."""


class DiscoverOptions(Options):
    """What is looked for, and how. What is left out of `repr` may change on resume (launch/identity.py)."""

    path: str
    """The problem: a Python file, a folder with `problem.py`, or the name of an included one (docs/discover.md)."""
    evaluations: int | None = Field(default=None, ge=1, repr=False)
    """Ends the run after so many evaluations, at the end of the step."""
    tokens: int | None = Field(default=None, ge=1, repr=False)
    """Ends the run after so many tokens of prompts and completions, at the end of the step."""
    seconds: float | None = Field(default=None, gt=0, repr=False)
    """Ends the run after so many seconds, at the end of the step."""
    archive: bool = True
    """Show candidates of the archive; `false` always shows the seed, so that samples are independent."""
    proposals: Form = "either"
    """What an answer holds: `edits` of the candidate shown (SEARCH/REPLACE blocks), a `whole` candidate, or `either`."""
    islands: int = Field(default=4, ge=1, le=1000)
    """Groups of candidates that develop apart; each hands its best to the next now and then."""
    keep: int = Field(default=25, ge=1)
    """Candidates kept on an island, one of each score."""
    others: int = Field(default=2, ge=0, le=20)
    """Candidates shown beside the one to improve, the best of all first."""
    workers: int | None = Field(default=None, ge=1, repr=False)
    """Evaluations at a time; by default as many as there are cores."""


class Discover(QuestionTask):
    """Look for the best solution of one problem: a candidate of the archive is shown, and a better one is asked for."""

    Options: ClassVar[type[Options]] = DiscoverOptions
    named = "path"
    seed_text = (
        "You look for the best solution of one problem. Read the candidate, its score and what was said of it. Think of what "
        "limits the score, and propose one that scores better."
    )
    grades_apart = True

    def __init__(self, options: DiscoverOptions) -> None:
        super().__init__(options)
        self.problem: Problem = load_problem(options.path)
        self.grades_at_once = options.workers or os.cpu_count() or 1
        budget = Budget(options.evaluations, options.tokens, options.seconds)
        archive = Archive(self.problem, options.islands, options.keep)
        self.memory: Search = Search(self.problem, archive, budget, options.proposals, options.archive)

    def examples(self, split: Split) -> Sequence[Example]:
        """As many as are needed for training; there is nothing to hold out."""
        return LazyExamples(
            PROBLEMS if split == "train" else 0, partial(_example, self.problem.name, self.problem.digest)
        )

    def shown(self, example: Example) -> object:
        return None

    def messages(self, example: Example) -> list[Message]:
        parent = self.memory.parent(example)
        others = self.memory.others(example, self.options.others)
        return [{"role": "user", "content": question(self.problem, parent, others, self.options.proposals)}]

    def grade(self, example: Example, answer: str) -> Feedback:
        return self.memory.grade(example, answer)


def _example(name: str, digest: str, number: int) -> Example:
    return Example(f"{name}/{number}", {"number": number, "problem": digest})


def question(problem: Problem, parent: Candidate, others: Sequence[Candidate], form: Form) -> str:
    """What the model is asked."""
    if problem.prompt:
        score = f"{parent.score:.10g}" if parent.number else ""
        best = others[0].text.strip() if others else ""
        shown = {"parent": parent.text.strip(), "score": score, "words": parent.words, "best": best}
        return re.sub(r"\{(parent|score|words|best)\}", lambda found: shown[found[1]], problem.prompt)
    better = "higher" if problem.goal == "maximize" else "lower"
    language = {".py": "python", ".txt": ""}.get(problem.suffix, problem.suffix[1:])
    parts = [f"The problem: {problem.about} A {better} score is better."]
    parts += [
        f"A candidate that scores {each.score:.10g}:\n{_fenced(shorten(each.text, SHOWN), language)}" for each in others
    ]
    said = f" What was said of it:\n{parent.words}" if parent.words else ""
    known = f" It scores {parent.score:.10g}.{said}" if parent.number else ""
    parts.append(f"The candidate to improve:\n{_fenced(parent.text, language)}{known and chr(10)}{known.strip()}")
    whole = f"Write the whole new candidate in one block that begins with ```{language}."
    edits = (
        "Write edits of the candidate to improve, each in this form, with lines that occur in it exactly once:\n"
        "<<<<<<< SEARCH\nlines to replace\n=======\nnew lines\n>>>>>>> REPLACE"
    )
    ways = {"whole": whole, "edits": edits, "either": f"{edits}\nOr: {whole[0].lower()}{whole[1:]}"}
    if problem.is_program:
        parts.append("A program must return the same each time it runs: give random numbers a seed.")
    parts.append(ways[form])
    return "\n\n".join(parts)


def _fenced(text: str, language: str) -> str:
    longest = max((len(found) for found in re.findall(r"^`{3,}", text, re.M)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
