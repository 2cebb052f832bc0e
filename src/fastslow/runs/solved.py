"""The solved rollouts that a run has saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from fastslow.base.errors import RunError
from fastslow.records import Completion, Turn
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.rollouts import newest_first, read_table

COLUMNS = ("example", "policy_step", "score", "faults", "components", "questions", "answers", "tokens")


@dataclass(frozen=True)
class SolvedRollout:
    """A saved rollout; its turns have no prompts and no log-probabilities, which the table does not hold exactly."""

    example: str
    policy_step: int
    turns: tuple[Turn, ...]


def read_solved(run: RunFolder, least: float, most: int) -> dict[str, list[SolvedRollout]]:
    """Rollouts of both loops with a score of at least `least`, by problem: the newest first, at most `most`, all different.

    Rollouts with faults, truncated ones too, are left out. A run that has saved none raises.
    """
    found: dict[str, list[SolvedRollout]] = {}
    highest: float | None = None
    for path in newest_first(run):
        table = read_table(path, COLUMNS)
        scores = [score for score in table["score"].to_pylist() if score is not None]
        highest = max([*scores, *([] if highest is None else [highest])], default=None)
        with files.understood(path):
            rows = table.filter(pc.greater_equal(table["score"], least)).to_pylist()
            for row in sorted(rows, key=lambda row: -row["policy_step"]):
                _keep(row, found, most)
    if highest is None:
        raise RunError(
            f"'{run.path}' has no saved rollouts; they are saved while a run trains with output.save_rollouts=true"
        )
    if not found:
        raise RunError(
            f"no saved rollout of '{run.path}' has a score of at least {least:g} (the highest is {highest:g}): there is "
            "nothing to learn from; accept lower scores with --score"
        )
    return found


def _keep(row: dict[str, Any], found: dict[str, list[SolvedRollout]], most: int) -> None:
    if row["faults"] or not any(row["tokens"]):
        return
    parts = zip(row["components"], row["questions"], row["tokens"], row["answers"], strict=True)
    turns = tuple(Turn(name, question, (), Completion(tuple(ids), ()), answer) for name, question, ids, answer in parts)
    kept = found.setdefault(row["example"], [])
    if len(kept) < most and all(turns != other.turns for other in kept):
        kept.append(SolvedRollout(row["example"], row["policy_step"], turns))
