"""The contexts of a run as plain records, and the best of them: what `fastslow contexts --json` prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fastslow.base.errors import RunError
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.lineage import gather


@dataclass(frozen=True)
class ContextRecord:
    """One context over the whole run."""

    id: str
    texts: dict[str, str]
    """By component."""
    parents: list[str]
    born: int
    """The cycle it was proposed in; 0 for the seed text."""
    score: float | None
    """Mean score on training problems when it was last scored."""
    scored_at: int | None
    """The step of the policy it was last scored under."""
    in_pool: bool
    """A member of the present pool."""
    best: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_contexts(run: RunFolder) -> list[ContextRecord]:
    """Every context that was in use, in order of appearance; before the first cycle, and without a fast loop, the seed."""
    with files.understood(run.path):
        cycles = run.cycles()
        if not cycles:
            return [_seed(run)]
        best, alive = cycles[-1]["best"], {record["id"] for record in cycles[-1]["population"]}
        return [
            ContextRecord(
                member.id,
                dict(member.texts),
                list(member.parents),
                member.born,
                member.score,
                member.scored_at,
                member.id in alive,
                member.id == best,
            )
            for member in gather(cycles).values()
        ]


def best_context(run: RunFolder) -> ContextRecord:
    """The context of the newest cycle that scored best on training problems."""
    found = [record for record in read_contexts(run) if record.best]
    if not found:
        raise RunError(f"the newest file in '{run.path / 'contexts'}' names no best context; restore it from a copy")
    return found[0]


def _seed(run: RunFolder) -> ContextRecord:
    seed = run.read_json("contexts/seed.json")
    if seed is None:
        raise RunError(f"'{run.path}' has no contexts yet; they are written when the run starts")
    return ContextRecord(seed["id"], dict(seed["texts"]), [], 0, None, None, in_pool=True, best=True)
