"""What a finished run says: its numbers, and notes on what they hide."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastslow.base.errors import FastSlowError
from fastslow.launch.schedule import KINDS, NAMES
from fastslow.recipe import Recipe
from fastslow.rollouts.play import FAULT
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Ledger
from fastslow.runs.use import uses, verdict
from fastslow.state import State

TRUNCATED = 0.25
"""The share of truncated rollouts from which the run says so."""


def numbers(run: RunFolder, folder: Path, state: State, seconds: float) -> dict[str, Any]:
    """The summary that a view shows."""
    evaluations = run.rows("evals")
    results = evaluations[-1]["results"] if evaluations else {}
    total = state.ledger.total()
    faulty = total.faults.get(FAULT, 0)
    return {
        "run": str(folder),
        "steps": state.step,
        **{f"validation ({label})": f"{result['mean']:.3f}" for label, result in results.items()},
        **(state.kept.numbers() if state.kept else {}),
        "rollouts": rollouts(state.ledger),
        "tokens": total.prompt_tokens + total.completion_tokens,
        **({"faulty grades": faulty} if faulty else {}),
        **{f"rescue by {name}": each.said for name, each in (state.rescue.of if state.rescue else {}).items()},
        "seconds": round(seconds),
    }


def rollouts(ledger: Ledger) -> str:
    """All but those before step 1, and their kinds, as `fastslow check` counts them."""
    each = {kind: ledger.total(purposes).rollouts for kind, purposes in KINDS.items()}
    parts = " + ".join(f"{count} {NAMES.get(kind, kind)}" for kind, count in each.items() if count)
    return f"{sum(each.values())} ({parts})"


def of_budget(recipe: Recipe, played: int, step: int) -> str:
    """Why the rollouts of training are not exactly the budget."""
    allowed = recipe.rollouts
    if allowed is not None and played > allowed:
        return f"{played:,} of {allowed:,} training rollouts: a step or cycle that has begun is finished"
    if allowed is not None and played < allowed and step >= recipe.slow.steps:
        return f"{played:,} of {allowed:,} training rollouts: slow.steps={recipe.slow.steps} ended the run"
    return ""


def notes(run: RunFolder, recipe: Recipe, state: State) -> Iterator[str]:
    """A sentence each."""
    best, spent = state.course.chosen(state.step), state.ledger.total()
    if best != state.step:
        yield (
            f"the reward of training was best at step {best}, not at the last, {state.step}: eval, export and load_model "
            f"take the checkpoint of step {best}, and the last with --step last"
        )
    if said := of_budget(recipe, state.ledger.training_rollouts, state.step):
        yield said
    truncated = spent.faults.get("truncated", 0)
    if spent.rollouts and truncated >= TRUNCATED * spent.rollouts:
        yield (
            f"truncated at sampling.max_tokens={recipe.sampling.max_tokens}: {truncated / spent.rollouts:.0%} of the "
            "rollouts, which are graded as far as they got; raise it, or ask for shorter answers"
        )
    with suppress(FastSlowError):  # the run has finished all the same
        if ignored := verdict(uses(run, state.pool.best.context.texts).values(), recipe.method):
            yield f"a line that is {ignored}"
