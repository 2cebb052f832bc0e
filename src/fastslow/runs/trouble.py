"""What a run says of training that goes wrong: what was found, what it may come from, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastslow.base.errors import Diverged, NothingLearnt, RunError
from fastslow.recipe import resuming

if TYPE_CHECKING:
    from fastslow.recipe import Recipe
    from fastslow.runs.ledger import Entry
    from fastslow.slow.steady import Point

WINDOW = 10
LIKELY = "Likely causes: the problems are too hard or too easy for the model, the grader never pays, or answers are truncated"
TRUST = {
    None: "words rank equal rewards; too few groups with different rewards tell yet whether words predict rewards",
    True: "words predict rewards, and rank equal ones",
    False: "words do not predict rewards; they rank nothing until they do",
}
"""By whether words are trusted (slow/words.py)."""


class Mismatched(RunError):
    """What samples is not the policy that is trained."""


def mismatched(step: int, found: float, limit: float) -> str:
    return (
        f"step {step}: the sampler's log-probabilities differ from the policy's by {found:.2f} on average "
        f"(sampler_mismatch), and rounding explains {limit:.2f}"
    )


def fallen(step: int, best: int | None, before: float, now: float, restored: bool) -> str:
    answer = f"training continues from the weights of step {best}, with a tenth of the learning rate"
    return (
        f"step {step}: the reward has fallen from {before:.3f} at step {best} to {now:.3f}; "
        f"{answer if restored else 'a lower slow.learning_rate may hold it'}"
    )


def collapsed(step: int, first: Point, last: Point) -> str:
    """The policy in the first steps and in the last."""
    return (
        f"step {step}: the policy has collapsed: in the last {WINDOW} steps {last.equal:.0%} of the groups "
        f"had equal rewards, with a mean reward of {last.reward:.3f} and an entropy of {last.entropy:.3f} (in the first "
        f"{WINDOW}: {first.entropy:.3f}); a lower slow.learning_rate or a higher slow.kl keeps answers varied"
    )


def idle(steps: int, reward: float, truncated: float, spent: Entry, folder: Path) -> str:
    return (
        f"nothing is learnt: for {steps} steps the rewards in every group were equal (mean {reward:.3f}), and no "
        f"edit of the context was kept. {LIKELY} ({truncated:.0%} in this step){usual_fault(spent)}. To see the answers: "
        f"fastslow rollouts {folder}"
    )


def usual_fault(spent: Entry) -> str:
    """The fault that most rollouts have, if one is in half of them or more."""
    name, count = max(spent.faults.items(), key=lambda each: each[1], default=("", 0))
    return (
        f"; {count:,} of {spent.rollouts:,} rollouts have the fault {name}" if 2 * count >= spent.rollouts > 0 else ""
    )


def unmoved(steps: int, kl: float, equal: float, recipe: Recipe) -> str:
    return (
        f"the weights hardly moved: after {steps} steps the KL from the base model is {kl:.0e} a token"
        f"{', so that a gain comes from the text' if recipe.method == 'fst' else ''}. Rewards were equal in {equal:.0%} of "
        f"the groups, which teaches nothing; slow.learning_rate is {recipe.slow.learning_rate:g}: raise it, or train longer"
    )


def hopeless(step: int, steps: int, recipe: Recipe, spent: Entry, folder: Path) -> NothingLearnt:
    return NothingLearnt(
        f"stopped after step {step}, which is saved: for {steps} steps the rewards in every group were "
        f"equal{' and no new text was kept' if recipe.method == 'fst' else ''}: nothing was learnt "
        f"(slow.patience={recipe.slow.patience}). {LIKELY}{usual_fault(spent)}. To see the answers: fastslow rollouts "
        f"{folder}; to continue all the same: {resuming(recipe, folder, 'slow.patience=null')}"
    )


def diverged(error: Diverged, step: int, recipe: Recipe, folder: Path, saved: Sequence[int]) -> RunError:
    """What ended the run, at which step; `saved` are the steps of its checkpoints."""
    good = [each for each in saved if each < step][-1:]
    start_from = (
        f"; to start it from the last good checkpoint: fastslow export {folder} DIR --step {good[0]}, then model=DIR"
        if good
        else ""
    )
    return RunError(
        f"training has diverged at step {step}: {error}; start a new run with a lower "
        f"slow.learning_rate (it was {recipe.slow.learning_rate:g}){start_from}"
    )
