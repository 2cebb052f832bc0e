"""What a run writes while it trains: metrics, rollouts, the ledger, checkpoints. Only the main process writes."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastslow.base.errors import Diverged, NothingLearnt, RunError
from fastslow.base.world import Stopped
from fastslow.engine.base import MISMATCH, Engine, Numbers, Update
from fastslow.recipe import Recipe
from fastslow.records import Rollout
from fastslow.rollouts.play import Timing, is_faulty
from fastslow.runs import trouble
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import FAST, RETRIES, SLOW, Entry, Purpose
from fastslow.runs.ranges import Ranges
from fastslow.runs.saving import Saver
from fastslow.runs.trackers import Trackers
from fastslow.runs.trouble import Mismatched
from fastslow.runs.view import View
from fastslow.tasks.base import Task
from fastslow.tasks.stages import Stages

if TYPE_CHECKING:
    from fastslow.evaluation.measure import Measured
    from fastslow.rollouts.rounds import Group
    from fastslow.slow.update import Signal
    from fastslow.state import State

TRAINED = ("loss", "grad_norm", "entropy", "kl", "sampler_mismatch")
INTERVAL, SHARE = 300.0, 0.02
"""Seconds after which a checkpoint is saved, and the most that saving may take of the time."""
IDLE = 10
"""Steps without a gradient after which the run says that nothing is learnt."""
UNMOVED = 1e-4
"""KL from the base model, a token, up to which the weights have hardly moved."""
TRACKED = (
    "reward",
    "reward_std",
    "zero_variance",
    "response_length",
    "truncated",
    "faulty_grades",
    "staleness",
)


class Pace:
    """When a checkpoint is due by time: after `INTERVAL`, and only when saving takes no more than `SHARE` of the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._last, self._interval, self._seconds = clock, clock(), INTERVAL, 0.0

    def due(self) -> bool:
        return self._clock() - self._last >= self._interval

    def affordable(self) -> bool:
        """Whether one more would take no more than `SHARE` of the time; a checkpoint that takes less than a second always
        is, so that it does not depend on the clock which ones a small run has."""
        return self._seconds < 1 or self._clock() - self._last >= self._seconds / SHARE

    def saved(self, seconds: float) -> None:
        """A checkpoint has been saved, and that has taken so long."""
        self._last, self._seconds, self._interval = self._clock(), seconds, max(INTERVAL, seconds / SHARE)


class Recorder:
    """Writes to the folder, the view and the trackers of a run."""

    def __init__(
        self, recipe: Recipe, task: Task, engine: Engine, state: State, folder: Path, run: RunFolder | None, view: View
    ) -> None:
        self.recipe, self.engine, self.state = recipe, engine, state
        self.folder, self.run, self.view = folder, run, view
        self.prices = recipe.prices
        self.trained = (*TRAINED, "distillation") if recipe.teaches else TRAINED
        self.stages = task if isinstance(task, Stages) else None
        self.saver = Saver(recipe, engine, folder, run)
        self.checkpoints = self.saver.checkpoints
        self.ranges = Ranges(task.ranges) if task.ranges else None
        self.pace = Pace()
        self._held: State | None = None
        """The last completed step, None while one is being completed: then nothing can be saved."""
        self._saved: tuple[int, bool] | None = None
        """Step of the newest checkpoint, and whether it was settled then."""
        self._trusted: bool | None = True
        """Whether words were trusted in the last step (slow/words.py)."""
        self._collapsed = self._played = False
        self._mismatch: float | None = None
        """`sampler_mismatch` of the last step, if it was too large."""
        self._noted: Mapping[str, Any] = {}
        self._retries = 0
        """Repeated requests of the engine that are already in the ledger."""
        self._trackers: Trackers | None = None
        """Only on the main process, from `begin` on."""

    def begin(self) -> None:
        """The run starts, or resumes, from the current state."""
        if self.recipe.output.report_to and not self.state.done:
            self.engine.world.from_main(self._start_trackers)
        self._held, self._saved = self.state.copy(), (self.state.step, self.state.settled)
        spent = self.state.ledger.training_rollouts
        self.view.start(str(self.folder), self.recipe, self.state.step, spent)
        if self.run and self.state.step:  # what was later than the present step is gone
            self.saver.tidy(self.state)
        self._note()
        if self.state.kept is not None:
            self.state.kept.begin(self)
        if self.recipe.sampling.backend == "auto" and self._noted.get("backend") == "vllm":
            self.view.message(f"sampling with vLLM: {self._noted['why']}")
        best = self.state.pool.best
        score = best.mean if best.scores else None
        self.view.context(best.context.id, score, "\n".join(best.context.texts.values()), best.drawn)
        if self.state.done and self.state.settled:
            by_steps = self.state.step >= self.recipe.slow.steps
            ended = f"slow.steps={self.recipe.slow.steps}" if by_steps else f"rollouts={self.recipe.rollouts}"
            self.view.message(f"nothing is left to do: the run has reached {ended}; give a larger number to extend it")

    def _start_trackers(self) -> None:
        warn = partial(self.view.message, level="warning")
        self._trackers = Trackers(self.recipe.output.report_to, self.folder, self.recipe, warn)

    def close(self) -> None:
        """The run has ended, in whatever way."""
        if self._trackers:
            self._trackers.close()

    def _note(self) -> None:
        """What samples, and why, in run.json."""
        notes = self.engine.notes
        if self.run and notes != self._noted:
            self.run.set_status("running", sampler=notes)
        self._noted = notes

    def book(self, purpose: Purpose, rollouts: Sequence[Rollout], timing: Timing) -> None:
        """Book sampled rollouts."""
        self.state.ledger.book_rollouts(purpose, rollouts, timing.total, prices=self.prices)
        self._book_service(purpose)
        if self.state.kept is not None:
            self.state.kept.take(rollouts)
        self.view.spent(self.state.ledger.training_rollouts)
        self.view.sampled(rollouts)
        for said in self.ranges.add(rollouts) if self.ranges else ():
            self.view.message(said, "warning")

    def book_step(self, rollouts: Sequence[Rollout], reused: int, timing: Timing) -> None:
        """Book the rollouts sampled for a slow step, and the number of reused ones."""
        plain = [each for each in rollouts if self._is_withdrawn(each)]
        self.book("slow", [each for each in rollouts if not self._is_withdrawn(each)], timing)
        if plain:
            self.book("withdrawn", plain, Timing())  # the seconds are of one batch
        self.state.ledger.book("slow", Entry(reused=reused))
        self.state.clock.count({"sampling": timing.sampling, "grading": timing.grading})

    def _is_withdrawn(self, rollout: Rollout) -> bool:
        """Whether it was sampled under the seed text in a run that withdraws the others; the pool may hold that text too."""
        return bool(self.recipe.slow.withdraw) and rollout.context.id == self.state.seed_context.id

    def _book_service(self, purpose: Purpose, cost: float = 0.0) -> None:
        """Book what a training service charged beyond rollouts, and the requests repeated since the last call."""
        repeated, self._retries = self.engine.retries - self._retries, self.engine.retries
        self.state.ledger.book(purpose, Entry(cost=cost, faults={RETRIES: repeated} if repeated else {}))

    def step(
        self, groups: Sequence[Group], played: Sequence[Rollout], update: Update, signal: Signal, numbers: Numbers
    ) -> None:
        """Write a row for the completed step; `played` are its rollouts that were not reused."""
        state, clock = self.state, self.state.clock
        self._book_service("slow", numbers.get("cost") or 0.0)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        scores = [rollout.score for rollout in rollouts]
        by_context: dict[str, list[float]] = {}
        for rollout in rollouts:
            by_context.setdefault(rollout.context.id, []).append(rollout.score)
        ages = token_ages(rollouts, state.step - 1)
        row: dict[str, Any] = {
            "step": state.step,
            "cycle": state.last_cycle,
            **self._stage(),
            "reward": float(np.mean(scores)),
            "reward_std": float(np.std(scores)),
            # Contexts were selected by their reused rollouts: those are trained on, but would bias a mean reward upwards.
            "reward_played": float(np.mean([rollout.score for rollout in played])) if played else None,
            "rewards": {identifier: float(np.mean(values)) for identifier, values in by_context.items()},
            **({"parts": parts} if (parts := mean_parts(rollouts)) else {}),
            **self._with_and_without(rollouts),
            "contexts": len(by_context),
            "problems": len(groups),
            "zero_variance": signal.zero_variance,
            **signal.words,
            "trained_rows": len(update.rows),
            **({"rescue": state.rescue.row()} if state.rescue else {}),
            "response_length": float(np.mean([rollout.completion_tokens for rollout in rollouts])),
            "truncated": float(np.mean(["truncated" in rollout.faults for rollout in rollouts])),
            "faulty_grades": sum(map(is_faulty, rollouts)),
            "staleness": sum(age * tokens for age, tokens in ages.items()) / max(sum(ages.values()), 1),
            "ages": ages,
            "in_play": len(state.in_play.groups),
            # Undefined for a step without rows to train on; 0 would be wrong.
            **{key: numbers.get(key) if update.rows else None for key in self.trained},
            "learning_rate": numbers.get("learning_rate"),
            "seconds": sum(clock.phases.values()),
            "phases": dict(clock.phases),
            **self._spent(),
            **(state.kept.numbers() if state.kept else {}),
        }
        clock.phases.clear()
        if self.run:
            self.run.append("metrics", row)
            if self.recipe.output.save_rollouts:
                purposes = [*["slow"] * len(rollouts), *["rescue"] * len(signal.rescued)] if signal.rescued else None
                self.run.save_rollouts(state.step, [*rollouts, *signal.rescued], purposes, signal.advantages)
        if self._trackers:
            shown = {f"fastslow/{key}": row[key] for key in (*TRACKED, *self._spent())}
            self._trackers.log(state.step, {**numbers, **shown})
        self.view.step(state.step, self.recipe.slow.steps, row)
        self._warn_if_nothing_is_learnt(row)
        self._say_what_words_count(row)
        self._warn_if_collapsed()
        self._warn_if_unmoved(row)

    def require_agreement(self, mismatch: float | None) -> None:
        """Warn of a step whose `sampler_mismatch` is too large, and raise at the second in a row. Samplers may correct
        log-probabilities for top_p, which adds at most its logarithm."""
        if mismatch is None:
            return
        limit = MISMATCH - math.log(self.recipe.sampling.top_p)
        before, self._mismatch = self._mismatch, None if mismatch <= limit else mismatch
        if self._mismatch is None:
            return
        found = trouble.mismatched(self.state.step, mismatch, limit)
        if before is None:
            self.view.message(f"{found}; the run stops if the next step finds it too", "warning")
            return
        raise Mismatched(
            f"{found}; in the step before, {before:.2f}. What samples has other weights than what is trained, as when a "
            "server was changed; correct it and resume"
        )

    def affordable(self) -> bool:
        """Whether a checkpoint may be saved that no schedule asks for."""
        return self.engine.world.from_main(self.pace.affordable)

    def fell(self, before: float, now: float) -> Path | None:
        """Say that the reward has fallen; the best checkpoint, None if it cannot be used."""
        best = self.state.course.best

        def checkpoint() -> Path | None:
            try:
                return self.checkpoints.get(best or 0)
            except RunError:
                return None

        path = self.engine.world.from_main(checkpoint)
        self.view.message(trouble.fallen(self.state.step, best, before, now, path is not None), "warning")
        return path

    def require_progress(self) -> None:
        """Raise if the run cannot learn: no step has had a gradient for long, and the fast loop has kept no new text."""
        state, patience = self.state, self.recipe.slow.patience
        if self.recipe.method in ("rl", "fst") and not state.done and state.course.hopeless(patience):
            raise trouble.hopeless(state.step, state.course.idle, self.recipe, state.ledger["slow"], self.folder)

    def _warn_if_collapsed(self) -> None:
        """Say once that groups have become equal, without entropy and without being solved."""
        if not self._collapsed and (found := self.state.course.collapse()):
            self._collapsed = True
            self.view.message(trouble.collapsed(self.state.step, *found), "warning")

    def _warn_if_nothing_is_learnt(self, row: Mapping[str, Any]) -> None:
        """Say so when the rewards of every group have been equal for many steps, or for all, and no edit was kept."""
        state, idle = self.state, self.state.course.idle
        edited = any(member.context.parents for member in state.pool.members)
        due = idle == (min(state.step, IDLE) if state.done else IDLE)
        if due and not edited and self.recipe.method != "distill" and self.recipe.slow.advantage != "none":
            spent = state.ledger["slow"]
            self.view.message(trouble.idle(idle, row["reward"], row["truncated"], spent, self.folder), "warning")

    def _warn_if_unmoved(self, row: Mapping[str, Any]) -> None:
        """At the end, say so when the policy is still the base model, although it has been trained."""
        state, kl = self.state, row.get("kl")
        if kl is None or not state.done or state.step < IDLE or self.recipe.method == "distill" or abs(kl) > UNMOVED:
            return
        equal = np.mean([each.equal for each in state.course.points] or [row["zero_variance"]])
        self.view.message(trouble.unmoved(state.step, kl, float(equal), self.recipe), "warning")

    def _say_what_words_count(self, row: Mapping[str, Any]) -> None:
        """With `slow.feedback: rank`, say when words begin or cease to be trusted."""
        trusted = row.get("words_trusted", self._trusted)
        if trusted != self._trusted:
            self._trusted = trusted
            self.view.message(f"step {row['step']}, slow.feedback=rank: {trouble.TRUST[trusted]}")

    def playing(self) -> None:
        """Say once that the first step begins: later ones take about as long."""
        if not self._played:
            slow, self._played = self.recipe.slow, True
            self.view.doing(f"step {self.state.step + 1}: playing {slow.problems * slow.group} rollouts")

    def measuring(self, contexts: int) -> None:
        """Say that an evaluation begins."""
        asked, several = self.recipe.evaluation, "s" * (contexts > 1)
        self.view.doing(f"evaluating {contexts} context{several} on up to {asked.problems} problems, k={asked.k}")

    def evaluation(self, measured: Measured, seconds: float) -> None:
        """Write a row for an evaluation after `seconds` of training."""
        state = self.state
        for rollouts, took in (
            (measured.rollouts, measured.seconds),
            (measured.divergence_rollouts, measured.divergence_seconds),
        ):
            state.ledger.book_rollouts("evaluation", rollouts, took, prices=self.prices)
        self._book_service("evaluation")
        state.clock.phases["evaluation"] = measured.seconds
        row = {
            "step": state.step,
            **self._stage(),
            "results": measured.results,
            "seconds": seconds,
            "tokens": state.ledger.training_tokens,
            **self._spent(),
        }
        if self.run:
            self.run.append("evals", row)
            if self.recipe.output.save_rollouts:
                purposes = ["evaluation"] * len(measured.rollouts)
                self.run.save_rollouts(state.step, measured.rollouts, purposes, of="evaluation")
        if self._trackers:
            means = {f"evaluation/{label}": result["mean"] for label, result in measured.results.items()}
            self._trackers.log(state.step, means)
        self.view.evaluation(state.step, measured.results)

    def ledger(self) -> None:
        """Write a row with the amounts booked since the last row."""
        state = self.state
        if (kept := state.kept) is not None:
            for each in kept.rows():
                if self.run:
                    self.run.append("candidates", {"step": state.step, **each})
            kept.turn()
        if self.run and (spent := state.ledger.since(state.written).spent()):
            self.run.append("ledger", {"step": state.step, "cycle": state.last_cycle, "spent": spent})
        state.written = state.ledger.snapshot()
        self._note()

    @contextmanager
    def completing(self) -> Iterator[None]:
        """A block that changes weights, rows and state together. A signal waits for its end, and what fails in it leaves
        nothing that could be saved."""
        with self.engine.world.stops.whole():
            self._held = None
            yield
            self._held = self.state.copy()

    def checkpoint(self) -> None:
        """Save a checkpoint if one is due: at the end, every `checkpoint_every` steps, at the best reward so far, or by time.
        If that fails, warn and continue training, except at the end of the run."""
        state, world = self.state, self.engine.world
        due = self._scheduled(state) or state.step in state.course.peaks
        if state.step == 0 or not (due or (self._mismatch is None and world.from_main(self.pace.due))):
            return
        try:
            with world.stops.whole():
                self._save(self._held)
        except RunError as error:
            if state.done:
                raise
            self.view.message(f"{error}; training continues, and the next checkpoint is saved as scheduled", "warning")

    def rescue(self, error: BaseException) -> None:
        """The run ends early: save the last completed step, unless it is saved. Several processes can do that together only
        if they stop together."""
        self.engine.world.stops.stopping()
        held, alone = self._held, self.engine.world.size == 1
        if held is None or held.step == 0 or self._saved == (held.step, held.settled):
            return
        if isinstance(error, Mismatched) and self.checkpoints.steps():
            return  # those are of better weights
        if isinstance(error, MemoryError) or not (alone or isinstance(error, Stopped | Mismatched | NothingLearnt)):
            return
        self.view.message(f"saving a checkpoint of step {held.step}; Ctrl+C ends without it")
        try:
            self._save(held)
        except RunError as problem:
            self.view.message(str(problem), "warning")

    def diverged(self, error: Diverged) -> RunError:
        """What ended the run, at which step, and what to do."""
        return trouble.diverged(error, self.state.step, self.recipe, self.folder, self.checkpoints.steps())

    def save(self) -> None:
        """Save the current state."""
        self._save(self.state, scheduled=True)

    def _scheduled(self, state: State) -> bool:
        return state.done or state.step % self.recipe.output.checkpoint_every == 0

    def _save(self, held: State | None, scheduled: bool = False) -> None:
        assert held is not None, "a step has been completed"
        started = time.monotonic()
        self.saver.save(held, scheduled or self._scheduled(held))
        self._saved = held.step, held.settled
        self.pace.saved(time.monotonic() - started)

    def _with_and_without(self, rollouts: Sequence[Rollout]) -> dict[str, float | None]:
        """Rewards under evolved texts and under the seed text apart, in a run that withdraws them."""
        if not self.recipe.slow.withdraw:
            return {}
        plain = [each.score for each in rollouts if self._is_withdrawn(each)]
        others = [each.score for each in rollouts if not self._is_withdrawn(each)]
        return {
            "reward_with_text": float(np.mean(others)) if others else None,
            "reward_without_text": float(np.mean(plain)) if plain else None,
            "withdrawn": len(plain) / len(rollouts),
        }

    def _spent(self) -> dict[str, int]:
        """Rollouts so far, by purpose."""
        ledger = self.state.ledger
        return {
            "rollouts_slow": ledger.total(SLOW).rollouts,
            "rollouts_reused": ledger["slow"].reused,
            "rollouts_fast": ledger.total(FAST).rollouts,
            "rollouts_evaluation": ledger["evaluation"].rollouts,
        }

    def _stage(self) -> dict[str, str]:
        """The stage of the last completed step, if the recipe has stages."""
        return {"stage": self.stages.behind(self.state.step).name} if self.stages else {}


def mean_parts(rollouts: Iterable[Rollout]) -> dict[str, float]:
    """The mean of each part of the scores, over the rollouts that have it."""
    found: dict[str, list[float]] = {}
    for rollout in rollouts:
        for name, value in rollout.feedback.parts.items():
            found.setdefault(name, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def token_ages(rollouts: Iterable[Rollout], step: int) -> dict[int, int]:
    """How many tokens of these rollouts are how many steps older than the policy of a step."""
    ages: Counter[int] = Counter()
    for rollout in rollouts:
        for turn in rollout.turns:
            drawn = turn.completion.steps or [rollout.policy_step] * len(turn.completion.ids)
            ages.update(step - each for each in drawn)
    return dict(sorted(ages.items()))
