"""The seam to the policy: what the loop asks of whatever holds the weights.

An engine samples, makes one optimizer step at a time, scores completions under the policy and its base model, saves,
restores and exports. It knows nothing of contexts, groups, budgets or tasks. `local` is TRL and accelerate in the processes
of the run; a service is another.

Failures:
- What an engine cannot do for a recipe (a method, a loss, a way of spreading weights) is a `RecipeError` when it is made,
  before anything is spent.
- `sample` and `update` return whole or raise. An engine behind a network retries what is transient by itself; what it raises
  ends the run, whose newest checkpoint then is the state to resume from. An update that raised may or may not have been
  applied: the loop never repeats it, it restores.
- `save` writes into the folder it is given and nowhere else; the caller puts the folder in place once every process has
  returned, so a checkpoint is whole or absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fastslow.records import Completion, Sampling, Turn
from fastslow.world import World

Ready = Callable[[int, Completion], None]
"""Called with the number of a prompt and its completion as soon as that is finished, from any thread."""
Numbers = Mapping[str, float | None]
"""What an update measured, by name; None for what this update could not know."""


@dataclass(frozen=True)
class Row:
    """One sequence to train on."""

    turn: Turn
    advantage: float
    """The weight of its tokens, aggregation included: the engine takes the mean over all tokens of the update."""
    policy_step: int
    """The step of the policy that sampled it. Ratios are against the log-probabilities that it was sampled with."""
    teacher_prompt: Sequence[int] = ()
    """Distillation: what the teacher reads in place of the turn's prompt."""


@dataclass(frozen=True)
class Update:
    """One optimizer step; without rows the weights stay as they are."""

    step: int
    rows: Sequence[Row]
    zero_variance: float
    """Share of the groups whose rewards are all equal."""


@dataclass(frozen=True)
class TokenScores:
    """A completion under the policy and under its base model, token by token."""

    policy: Sequence[float]
    """Log-probabilities."""
    base: Sequence[float]
    kl: Sequence[float] | None
    """The exact KL(policy ‖ base) over the vocabulary; None where an engine does not see all logits."""


class Engine(Protocol):
    """A policy that is sampled and trained."""

    tokenizer: Any
    max_length: int | None
    """Longest sequence the model takes, prompt and completion together."""
    world: World
    """The processes that make every call of the engine together; one, for a service."""
    in_flight: bool
    """Requests can be made one by one, thousands at a time. Otherwise a call computes a batch, and what all rollouts wait for
    is gathered into one."""

    async def sample(
        self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int, ready: Ready | None = None
    ) -> list[Completion]:
        """One completion per prompt from the policy as it is now, in order, with the log-probability of every token.

        Equal calls draw equal tokens on one machine, where the engine can promise that. With `ready` completions may be
        handed out before all are finished.
        """
        ...

    def prepare(self, checkpoint: Path | None = None) -> None:
        """Get ready for updates: once, before the first; from a checkpoint, with its weights, optimizer and step."""
        ...

    def update(self, update: Update) -> Numbers:
        """Make one optimizer step and return what it measured: loss, grad_norm, entropy, kl, learning_rate,
        sampler_mismatch, distillation; `sync_seconds` is the part spent on giving the sampler the new weights."""
        ...

    def score(self, turns: Sequence[Turn]) -> list[TokenScores]:
        """Completions under the policy and under the base model. All processes get the same turns and the same scores."""
        ...

    def freeze_teacher(self) -> None:
        """Distillation: the teacher has the policy's present weights from here on."""
        ...

    def load(self, checkpoint: Path) -> None:
        """Take the policy's weights from a checkpoint, to sample and score."""
        ...

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        """Write weights and optimizer, and the teacher where asked, so that `prepare` can read them."""
        ...

    def export(self, folder: Path) -> None:
        """Write the policy as a Hugging Face folder, an adapter merged into its base."""
        ...

    def report(self, numbers: Mapping[str, float]) -> None:
        """Send numbers to the trackers of the run, beside those of the update."""
        ...

    def close(self) -> None:
        """The run is over: trackers are closed, connections ended."""
        ...
