"""The engine protocol: what the loop needs from whatever holds the policy's weights.

An engine samples, makes one optimizer step at a time, scores completions under the policy and its base model, saves and
restores. It knows nothing of contexts, groups, budgets, tasks or trackers. The `local` engine runs accelerate in the
processes of the run; `tinker` is a client of a training service.

Failures:
- An engine that does not support a recipe (its method, loss or sharding) raises `RecipeError` when it is constructed, before
  any rollout is sampled.
- `sample` and `update` complete or raise. A remote engine retries transient errors itself, and after a lost session continues
  from a state that the service saved; an exception ends the run, which then resumes from its newest checkpoint. An update
  that raised may or may not have been applied: the loop never repeats it, it restores a checkpoint.
- `save` writes only to the folder it is given; the caller renames the folder into place once every process has returned, so a
  checkpoint is complete or absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fastslow.base.world import World
from fastslow.records import Completion, Enough, Ready, Sampling, Turn

if TYPE_CHECKING:
    from torch import Tensor

Numbers = Mapping[str, float | None]
"""Metrics of an update, by name; None if undefined for this update."""


@dataclass(frozen=True)
class Row:
    """One sequence to train on."""

    turn: Turn
    advantage: float
    """The weight of its tokens."""
    policy_step: int
    """The step of the oldest policy that sampled it. Importance ratios use the log-probabilities from sampling."""
    scale: float = 1.0
    """The factor that turns a mean over all tokens of the update into one over each problem's tokens, then over problems."""
    teacher_prompt: Sequence[int] = ()
    """Distillation: the prompt that the teacher gets instead of the turn's prompt. Rows without one have the policy loss; an
    update may have both."""
    helped: bool = False
    """It was sampled under another prompt than the turn's: importance ratios always use its log-probabilities, and they say
    nothing of how sampler and trainer differ."""


@dataclass(frozen=True)
class Update:
    """One optimizer step; without rows the weights are unchanged."""

    step: int
    rows: Sequence[Row]
    rate: float = 1.0
    """Factor of the learning rate."""

    def by_loss(self) -> list[Update]:
        """The rows of the policy loss and those of the distillation, as far as there are any."""
        halves = [[row for row in self.rows if bool(row.teacher_prompt) is taught] for taught in (False, True)]
        return [Update(self.step, rows) for rows in halves if rows] or [self]


@dataclass(frozen=True)
class Batch:
    """What the loss of a micro-batch is computed from: rows `_R` by completion tokens `_T`, padded on the right."""

    logprobs_RT: Tensor
    behaviour_RT: Tensor
    """Log-probabilities under the policy that sampled a row."""
    reference_RT: Tensor | None
    """Log-probabilities under the base model; None without a penalty."""
    advantages_R: Tensor
    balanced_R: Tensor
    """Advantages times `Row.scale`."""
    mask_RT: Tensor
    """1 at tokens, 0 at padding."""
    tokens: int
    """Of the whole update, as are the rows: means do not depend on how it is cut into micro-batches."""
    rows: int
    most_tokens: int
    """The most tokens that a completion may have."""


MISMATCH = 0.25
"""Mean difference of the log-probabilities of sampler and trainer that rounding explains: bf16 differs by less than 0.1."""

Objective = Callable[[Batch], tuple["Tensor", Mapping[str, "Tensor"]]]
"""A micro-batch's part of the loss, and numbers of each token, to be averaged over all tokens of the update."""


@dataclass(frozen=True)
class TokenScores:
    """Per-token scores of a completion under the policy and its base model."""

    policy: Sequence[float]
    """Log-probabilities."""
    base: Sequence[float]
    kl: Sequence[float] | None
    """The exact KL(policy ‖ base) over the vocabulary; None if the engine does not have all logits."""


class Engine(Protocol):
    """A policy that is sampled and trained."""

    tokenizer: Any
    max_length: int | None
    """Maximum sequence length of the model, prompt and completion together."""
    world: World
    """The processes that make every engine call together; one for a remote service."""
    in_flight: bool
    """The engine accepts thousands of concurrent single-prompt requests. Otherwise each call computes one batch, and the
    prompts of all waiting rollouts are batched."""
    pausable: bool = False
    """`sample` can stop before all completions are finished and continue them later, which `sampling.ahead` needs. Other
    engines are never given `limits` or `enough`."""

    @property
    def retries(self) -> int:
        """Requests repeated so far after failures of a service or of vLLM servers; 0 for an engine in this process."""

    @property
    def notes(self) -> Mapping[str, Any]:
        """What run.json says of the sampler: which one was chosen and why, whether the model's kernels are fused, and the
        requests of every server so far."""

    async def sample(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        seed: int,
        *,
        limits: Sequence[int] | None = None,
        enough: Enough | None = None,
        ready: Ready | None = None,
    ) -> list[Completion]:
        """One completion per prompt from the current policy, in order, with the log-probability of every token.

        All are finished (`Completion.ended`), unless `enough` says that sampling may stop: it is called whenever completions
        have been finished, from any thread, and depends on nothing else. An unfinished completion has the tokens drawn so
        far, maybe none; a later call whose prompt ends with them continues it. `limits` are the most tokens of each
        completion, in place of `sampling.max_tokens`. With `ready`, completions may be delivered before the call returns,
        each once, and the same as in the result.
        Equal calls return equal tokens, and stop at equal tokens, on the same machine, if the engine is deterministic. A call
        that raises returns nothing: what it drew and did not deliver is lost, and nothing of the policy has changed.
        """

    def prepare(self, checkpoint: Path | None = None) -> None:
        """Set up training once, before the first update; a checkpoint restores weights, optimizer and step."""

    def update(self, update: Update) -> Numbers:
        """Make one optimizer step and return its metrics: loss, grad_norm, entropy, kl, clipped, learning_rate,
        sampler_mismatch, distillation; `largest_weight` is the largest absolute value of a trained weight after the step,
        `sync_seconds` the time spent on sending the new weights to the sampler, `cost` what a service charged."""

    def score(self, turns: Sequence[Turn]) -> list[TokenScores]:
        """Score completions under policy and base model. All processes pass the same turns and get the same scores."""

    def freeze_teacher(self) -> None:
        """Distillation: copy the policy's current weights to the teacher."""

    def load(self, checkpoint: Path) -> None:
        """Load the policy's weights from a checkpoint, without optimizer and step."""

    def save(self, folder: Path, *, teacher: bool = False) -> None:
        """Write weights and optimizer, and with `teacher` the teacher, for `prepare` to restore. The weights, or an adapter
        of PEFT, are in the form of transformers: `fastslow export` reads them."""

    def close(self) -> None:
        """End of the run: close connections."""
