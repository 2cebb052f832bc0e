"""Rollouts as a parquet table: what was asked and answered, by which context, how it was graded, and token by token.

Scalars and short texts come first, so that a reader can take a few columns of many files. Log-probabilities are those of
sampling, in half precision: they are for people. The texts of the tokens are in the file's metadata, once per token id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastslow.records import Rollout, Turn
from fastslow.runs import files

if TYPE_CHECKING:
    import pyarrow as pa

Decode = Callable[[Sequence[int]], str]
"""The text of token ids."""
PIECES = b"fastslow.tokens"
"""The key in the file's metadata of the JSON object with the text of each token id."""


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
        import pyarrow.parquet as pq

        table = _table(rollouts, purposes, advantages)
        if self.decode is not None:
            table = table.replace_schema_metadata({PIECES: self._vocabulary(rollouts)})
        with files.temporary(path) as unfinished:
            pq.write_table(table, unfinished, compression="zstd")

    def _vocabulary(self, rollouts: Sequence[Rollout]) -> bytes:
        assert self.decode is not None
        ids = {int(token) for rollout in rollouts for turn in rollout.turns for token in turn.completion.ids}
        for token in ids - self._pieces.keys():
            self._pieces[token] = self.decode([token])
        return files.encode(json.dumps({str(token): self._pieces[token] for token in sorted(ids)}))


def _table(
    rollouts: Sequence[Rollout], purposes: Sequence[str] | None, advantages: Sequence[float | None] | None
) -> pa.Table:
    import pyarrow as pa

    def column(kind: pa.DataType, read: Callable[[Rollout], Any]) -> pa.Array:
        return pa.array([read(rollout) for rollout in rollouts], kind)

    def by_turn(kind: pa.DataType, read: Callable[[Turn], Any]) -> pa.Array:
        return pa.array([[read(turn) for turn in rollout.turns] for rollout in rollouts], pa.list_(kind))

    columns: dict[str, pa.Array] = {
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
        "tokens": _numbers(rollouts, "int32", lambda turn: turn.completion.ids),
        "logprobs": _numbers(rollouts, "float16", lambda turn: turn.completion.logprobs),
    }
    if purposes is not None:
        columns["purpose"] = pa.array(list(purposes), pa.string())
    if advantages is not None:
        columns["advantage"] = pa.array(list(advantages), pa.float64())
    return pa.table(columns)


def _numbers(rollouts: Sequence[Rollout], kind: str, read: Callable[[Turn], Sequence[float]]) -> pa.Array:
    """The numbers of every token by rollout and turn."""
    import numpy as np
    import pyarrow as pa

    turns = [turn for rollout in rollouts for turn in rollout.turns]
    flat = np.fromiter((number for turn in turns for number in read(turn)), kind)
    inner = pa.ListArray.from_arrays(pa.array(_offsets(map(len, map(read, turns))), pa.int32()), pa.array(flat))
    return pa.ListArray.from_arrays(pa.array(_offsets(len(rollout.turns) for rollout in rollouts), pa.int32()), inner)


def _offsets(lengths: Any) -> list[int]:
    return list(accumulate(lengths, initial=0))


def _text(text: str) -> str:
    return files.encode(text).decode()
