"""How far searches got after as many evaluations, and whether all that they announced holds.

    fastslow discover PROBLEM model=MODEL --learn NAMES --evaluations 400 seed=SEED --out RUN
    python -m benchmarks.discoveries RUN … [--every 100] [--problems FOLDER]    # where the problem files are, if not there

For each problem and what learned (NAMES): the best verified score after so many evaluations, up to the number that all
searches of the problem have made; the mean over seeds with its 95% interval. `valid` and `better` are shares of all
proposals: those that got a score, and those that score better than the problem's seed. Every record, and each best file, is
evaluated again from scratch. One that scores worse than was announced is printed, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.discover.problem import Problem, load_problem
from fastslow.discover.search import BEST
from fastslow.launch.discovery import LEARNERS
from fastslow.recipe import Recipe
from fastslow.runs.folder import RunFolder
from fastslow.study.curves import over_seeds


@dataclass(frozen=True)
class Search:
    """What a search left."""

    folder: Path
    problem: str
    learners: str
    seed: int
    rows: Sequence[Mapping[str, Any]]
    """Of its evaluations, in order."""
    unused: int
    """Proposals that cost no evaluation."""


def learners(recipe: Recipe) -> str:
    """What learned in a search, as `--learn` names it."""
    there = (
        recipe.tasks[0].options.get("archive", True),
        recipe.method != "rl",
        recipe.method != "gepa" and recipe.slow.advantage != "none",
    )
    return ",".join(name for name, learns in zip(LEARNERS, there, strict=True) if learns) or "none"


def read(folder: Path) -> Search:
    run = RunFolder.open(folder)
    recipe = run.recipe
    rows = sorted((row for row in run.rows("candidates") if "text" in row), key=lambda row: row["number"])
    last = (run.rows("metrics") or [{}])[-1]
    unused = int(last.get("duplicates", 0) + last.get("unreadable", 0))
    return Search(folder, str(recipe.tasks[0].options["path"]), learners(recipe), recipe.seed, rows, unused)


def best_after(search: Search, problem: Problem, evaluations: int) -> float:
    """The best verified score of the first evaluations. Every one that led had checks."""
    found = [row["score"] for row in search.rows[:evaluations] if row.get("checks") and row["score"] is not None]
    return (max if problem.goal == "maximize" else min)(found) if found else math.nan


def false_records(search: Search, problem: Problem) -> tuple[int, list[str]]:
    """How many records were evaluated again, and those that do not hold."""
    announced = {row["id"]: row for row in search.rows if row.get("checks") and row["score"] is not None}
    records = [(f"evaluation {row['number']}", row["text"], row["score"]) for row in announced.values()]
    said = RunFolder.open(search.folder).read_json(BEST)
    if said is not None:
        records.append((BEST, (search.folder / f"best{problem.suffix}").read_text(encoding="utf-8"), said["score"]))
    false = []
    for name, text, score in records:
        again = problem.verify(text).score
        if again is None or (problem.better(score, again) and not problem.agree([score, again])):
            false.append(f"{search.folder}, {name}: announced {score:.10g}, now {again}")
    return len(records), false


def table(problem: Problem, searches: Sequence[Search], every: int) -> list[str]:
    """A table of one problem."""
    most = min(len(search.rows) for search in searches)
    after = [*range(every, most, every), most]
    lines = [f"{problem.name} ({problem.goal}), best after so many evaluations:", ""]
    lines += [f"| learns | seeds | {' | '.join(map(str, after))} | valid | better |", "|---" * (len(after) + 4) + "|"]
    for kind in sorted({search.learners for search in searches}, key=lambda kind: (-len(kind), kind)):
        those = [search for search in searches if search.learners == kind]
        cells = [over_seeds([best_after(search, problem, count) for search in those]).words(5) for count in after]
        scores = [row["score"] for search in those for row in search.rows[1:] if row["score"] is not None]
        start = next((row["score"] for row in those[0].rows[:1]), None)
        better = sum(start is not None and problem.better(score, start) for score in scores)
        proposals = sum(len(search.rows) - 1 + search.unused for search in those)
        shares = [f"{count / proposals:.2f}" if proposals else "-" for count in (len(scores), better)]
        lines.append(f"| {kind} | {len(those)} | {' | '.join([*cells, *shares])} |")
    return [*lines, ""]


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reading.add_argument("runs", nargs="+", type=Path)
    reading.add_argument("--every", type=int, default=100)
    reading.add_argument("--problems", type=Path)
    chosen = reading.parse_args()
    searches = [read(folder) for folder in chosen.runs]
    problems: dict[str, Problem] = {}
    for name in sorted({search.problem for search in searches}):
        problems[name] = load_problem(chosen.problems / Path(name).name if chosen.problems else name)
        those = [search for search in searches if search.problem == name]
        print("\n".join(table(problems[name], those, chosen.every)))
    checked, false = 0, list[str]()
    for search in searches:
        count, wrong = false_records(search, problems[search.problem])
        checked, false = checked + count, false + wrong
    print(*false, f"{checked} records were evaluated again, {len(false)} are false", sep="\n")
    sys.exit(bool(false))


if __name__ == "__main__":
    main()
