"""What a run has written, as pandas DataFrames, and tables as CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Ledger
from fastslow.runs.lineage import read_contexts

if TYPE_CHECKING:
    import pandas as pd

EVALUATED = ("step", "stage", "context", "mean", "low", "high", "best", "k", "problems")
"""The first columns of the evaluations, where they exist."""
PLAYED = ("loop", "step", "cycle", "purpose", "example", "context", "score", "question", "answer", "feedback")
"""The first columns of the rollouts."""
BY_TOKEN = ("tokens", "logprobs")
"""Columns of the rollout files with a number for every token."""
SPENT = ("step", "cycle", "purpose")
DIVERGENCE = "divergence.csv"
"""File in a run folder with the KL from the base model at each checkpoint (`fastslow divergence`)."""


class Frames:
    """What the run of a folder has written so far, as DataFrames."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    @property
    def metrics(self) -> pd.DataFrame:
        """One row per slow step: reward, entropy, KL, response length, rollouts so far; the seconds of each phase are columns
        `seconds.PHASE`."""
        rows = self._folder.rows("metrics")
        for row in rows:
            row |= {f"seconds.{phase}": seconds for phase, seconds in (row.pop("phases", None) or {}).items()}
        return _frame(rows, ("step",))

    @property
    def evaluations(self) -> pd.DataFrame:
        """One row per evaluation and context (`seed`, `best context`): `mean` with its 95% interval `low` to `high`, `best`,
        `k`, `problems`."""
        rows = []
        with files.understood(self._folder.path):
            for row in self._folder.rows("evals"):
                for label, result in row.pop("results").items():
                    scores = {("context_id" if key == "context" else key): value for key, value in result.items()}
                    rows.append({**row, "context": label, **scores})
        return _frame(rows, EVALUATED)

    @property
    def contexts(self) -> pd.DataFrame:
        """One row per context that was in use: text, parents, cycle of birth, score, whether it is in the pool or best. With
        several components there is a column `text.COMPONENT` for each in place of `text`."""
        rows = []
        for context in read_contexts(self._folder):
            data = context.to_dict()
            texts = data.pop("texts")
            alone = len(texts) == 1
            rows.append({**data, **{"text" if alone else f"text.{key}": text for key, text in texts.items()}})
        return _frame(rows, ("id",))

    @property
    def ledger(self) -> pd.DataFrame:
        """What was spent, one row per step and purpose: rollouts, calls, tokens, seconds, cost between this row and the one
        before."""
        rows = []
        with files.understood(self._folder.path):
            for row in self._folder.rows("ledger"):
                for purpose, entry in Ledger.from_dict(row["spent"]).spent().items():
                    rows.append({"step": row["step"], "cycle": row["cycle"], "purpose": purpose, **entry})
        return _frame(rows, SPENT)

    @property
    def rollouts(self) -> pd.DataFrame:
        """One row per saved rollout of both loops; empty with `output.save_rollouts: false`. `question` is that of the first
        turn, `answer` that of the last; `questions`, `answers` and `components` list every turn. The tokens are left out."""
        import pandas as pd

        found = []
        for loop, unit, pattern in (("slow", "step", "step-*.parquet"), ("fast", "cycle", "cycle-*.parquet")):
            for number, path in sorted(files.numbered(self._folder.path / "rollouts", pattern).items()):
                rows = files.read_table(path)
                table = rows.drop_columns([name for name in BY_TOKEN if name in rows.column_names]).to_pandas()
                turns = zip(table["questions"], table["answers"], strict=True)
                asked = [(questions[0], answers[-1]) if len(answers) else ("", "") for questions, answers in turns]
                table["question"], table["answer"] = [first for first, _ in asked], [last for _, last in asked]
                found.append(table.assign(loop=loop, **{unit: number}))
        if not found:
            return _frame([], PLAYED)
        frame = pd.concat(found, ignore_index=True)
        frame = frame.reindex(columns=list(dict.fromkeys((*frame.columns, "step", "cycle", "purpose"))))
        frame = frame.astype({"step": "Int64", "cycle": "Int64", "purpose": object})
        frame["purpose"] = frame["purpose"].where(frame["purpose"].notna(), "slow")
        return _ordered(frame, PLAYED)


def _frame(rows: list[dict[str, Any]], first: Iterable[str]) -> pd.DataFrame:
    import pandas as pd

    return _ordered(pd.DataFrame(rows), first) if rows else pd.DataFrame(columns=list(first))


def _ordered(frame: pd.DataFrame, first: Iterable[str]) -> pd.DataFrame:
    begin = [name for name in first if name in frame]
    return frame[[*begin, *(name for name in frame if name not in begin)]]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with files.temporary(path) as unfinished, unfinished.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def read_divergence(folder: Path) -> dict[tuple[int, str], float]:
    """The KLs that `fastslow divergence` measured for a run, by step and context; empty if it was not run."""
    path = folder / DIVERGENCE
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(int(row["step"]), row["context"]): float(row["kl"]) for row in csv.DictReader(file)}
