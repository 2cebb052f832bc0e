"""Rollouts as parquet files: what was asked and answered, by which context, how it was graded, and token by token.

Scalars and short texts come first, so that a reader can take a few columns of many files. Log-probabilities are those of
sampling, in half precision: they are for people. The texts of the tokens are in the file's metadata, once per token id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.base.errors import RunError
from fastslow.records import Completion, Rollout, Turn
from fastslow.runs import files

if TYPE_CHECKING:
    import pyarrow as pa

    from fastslow.runs.folder import RunFolder

Decode = Callable[[Sequence[int]], str]
"""The text of token ids."""
PIECES = b"fastslow.tokens"
"""The key in the file's metadata of the JSON object with the text of each token id."""
SOLVED = ("example", "policy_step", "score", "faults", "components", "questions", "answers", "tokens")


class RolloutWriter:
    """Writes tables of rollouts; remembers the text of every token it has met."""

    def __init__(self, decode: Decode | None = None) -> None:
        self.decode = decode
        self._pieces: dict[int, str] = {}

    def write(
        self,
        path: Path,
        rollouts: Sequence[Rollout],
        purposes: Sequence[str] | None = None,
        advantages: Sequence[float | None] | None = None,
    ) -> None:
        """Write one row per rollout; `purposes` and `advantages`, one per rollout, add a column each."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = _table(rollouts)
        if purposes is not None:
            table = table.append_column("purpose", pa.array(list(purposes), pa.string()))
        if advantages is not None:
            table = table.append_column("advantage", pa.array(list(advantages), pa.float64()))
        if self.decode is not None:
            table = table.replace_schema_metadata({PIECES: self._vocabulary(self.decode, rollouts)})
        with files.temporary(path) as unfinished:
            pq.write_table(table, unfinished, compression="zstd")

    def _vocabulary(self, decode: Decode, rollouts: Sequence[Rollout]) -> bytes:
        ids = {int(token) for rollout in rollouts for turn in rollout.turns for token in turn.completion.ids}
        for token in ids - self._pieces.keys():
            self._pieces[token] = decode([token])
        return files.encode(json.dumps({str(token): self._pieces[token] for token in sorted(ids)}))


def _table(rollouts: Sequence[Rollout]) -> pa.Table:
    import pyarrow as pa

    def column(kind: pa.DataType, read: Callable[[Rollout], Any]) -> pa.Array:
        return pa.array([read(rollout) for rollout in rollouts], kind)

    def by_turn(kind: pa.DataType, read: Callable[[Turn], Any]) -> pa.Array:
        return pa.array([[read(turn) for turn in rollout.turns] for rollout in rollouts], pa.list_(kind))

    table = pa.table(
        {
            "example": column(pa.string(), lambda rollout: _text(rollout.example.id)),
            "context": column(pa.string(), lambda rollout: rollout.context.id),
            "policy_step": column(pa.int64(), lambda rollout: rollout.policy_step),
            "score": column(pa.float64(), lambda rollout: float(rollout.score)),
            "faults": column(pa.list_(pa.string()), lambda rollout: sorted(rollout.faults)),
            "feedback": column(pa.string(), lambda rollout: _text(rollout.feedback.text)),
            "error": column(pa.string(), lambda rollout: _text(rollout.error)),
            "components": by_turn(pa.string(), lambda turn: turn.component),
            "questions": by_turn(pa.string(), lambda turn: _text(turn.question)),
            "answers": by_turn(pa.string(), lambda turn: _text(turn.answer)),
            "prompt_tokens": column(pa.int64(), lambda rollout: rollout.prompt_tokens),
            "completion_tokens": column(pa.int64(), lambda rollout: rollout.completion_tokens),
            "tokens": by_turn(pa.list_(pa.int32()), lambda turn: turn.completion.ids),
            "logprobs": by_turn(pa.list_(pa.float16()), lambda turn: turn.completion.logprobs),
        }
    )
    if any(turn.shown is not None for rollout in rollouts for turn in rollout.turns):
        shown = by_turn(
            pa.string(), lambda turn: None if turn.shown is None else _text("\n\n".join(turn.shown.values()))
        )
        table = table.append_column("shown", shown)
    return table


def _text(text: str) -> str:
    return files.encode(text).decode()


def newest_first(run: RunFolder) -> list[Path]:
    """The files of saved rollouts. Cycles precede their steps."""
    folder, length = run.path / "rollouts", run.recipe.fast.cycle
    ages = {path: (number, 1) for number, path in files.numbered(folder, "step-*.parquet").items()}
    ages |= {path: (number * length + 1, 0) for number, path in files.numbered(folder, "cycle-*.parquet").items()}
    return sorted(ages, key=lambda path: ages[path], reverse=True)


@dataclass(frozen=True)
class SolvedRollout:
    """A saved rollout; its turns have no prompts and no log-probabilities, which the file does not hold exactly."""

    example: str
    policy_step: int
    score: float
    turns: tuple[Turn, ...]


def read_solved(run: RunFolder, least: float | None, most: int) -> dict[str, list[SolvedRollout]]:
    """Rollouts of both loops with a score of at least `least`, by problem: the newest first, at most `most`, all different.
    None takes the best of each problem, those with its highest score, if that is above 0.

    Rollouts with faults, truncated ones too, are left out. A run that has saved none raises.
    """
    found: dict[str, list[SolvedRollout]] = {}
    scores: list[float] = []
    for path in newest_first(run):
        with files.understood(path):
            rows = [row for row in files.read_table(path, SOLVED).to_pylist() if row["score"] is not None]
            scores += (row["score"] for row in rows)
            good = [row for row in rows if (row["score"] > 0 if least is None else row["score"] >= least)]
            solved = [row for row in good if not row["faults"] and any(row["tokens"])]
            for row in sorted(solved, key=lambda row: -row["policy_step"]):
                parts = zip(row["components"], row["questions"], row["tokens"], row["answers"], strict=True)
                turns = tuple(
                    Turn(name, asked, (), Completion(tuple(ids), ()), text) for name, asked, ids, text in parts
                )
                kept = found.setdefault(row["example"], [])
                if least is None and kept and row["score"] > kept[0].score:
                    kept.clear()
                equal = least is not None or not kept or row["score"] == kept[0].score
                if equal and len(kept) < most and all(turns != other.turns for other in kept):
                    kept.append(SolvedRollout(row["example"], row["policy_step"], row["score"], turns))
    if not scores:
        raise RunError(
            f"'{run.path}' has no saved rollouts; they are saved while a run trains with output.save_rollouts=true"
        )
    if not found:
        raise RunError(
            f"no saved rollout of '{run.path}' has a score {'above 0' if least is None else f'of at least {least:g}'} (the "
            f"highest is {max(scores):g}) and no faults: there is nothing to learn from"
            + ("" if least is None else "; leave out --score to take the best of each problem")
        )
    return found
