"""Fast-Slow Training, the method itself.

    Φ ← {seed text}
    for each cycle: look ahead at the problems of the next T steps; evolve Φ on them under the current weights (GEPA);
    then T times: G rollouts a problem, G/K under each context, one group; one CISPO update of the weights.

`Loop.updates` is that, top to bottom. It is a generator: each `yield` hands the trainer one update, and what follows the
yield runs when the trainer has made it. RL only leaves the evolving out, GEPA only the updates; FST-distill plays under the
seed text and learns from the contexts as teachers (slow/distill.py). Stages change what the stream holds and nothing else: no
part of the loop starts anew at a boundary, and a cycle that lies across one looks at both sides.

Where this differs from the paper: every score carries the step of the policy that earned it, and the carried population is
scored anew at a cycle's start, at a cost that is booked apart; with fewer than K contexts, the largest number of them that
divides G is used; evaluation is under the context that is best on training problems, never on validation. `Memory` is what
the loops leave for each other where a recipe asks to save rollouts (docs/rollouts.md); by default it stays empty.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fastslow.assembly import Parts
from fastslow.engine.local.distill import build_distillation
from fastslow.evaluation.validation import evaluate_now
from fastslow.fast.cycle import FastLoop
from fastslow.fast.drafts import Draft
from fastslow.fast.evidence import choose_anchors
from fastslow.fast.memory import Memory
from fastslow.fast.pool import Pool, compose
from fastslow.fast.reflection import build_reflector
from fastslow.fast.reflection.policy_chat import PolicyChat
from fastslow.keeping import restore_checkpoint, save_checkpoint
from fastslow.models.load import load_to_ask
from fastslow.records import Context, Rollout, Sampling
from fastslow.rollouts.cache import fill
from fastslow.rollouts.play import Timing
from fastslow.rollouts.replay import replay
from fastslow.rollouts.stream import open_stream
from fastslow.runs.checkpoint import Checkpoints
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Ledger, Purpose
from fastslow.runs.view import View
from fastslow.seeds import derive_seed
from fastslow.slow.update import Update, build_update
from fastslow.tasks.base import Example
from fastslow.tasks.stages import Stages

FAST: tuple[Purpose, ...] = ("rescore", "fast-minibatch", "fast-score")
TRAINED = ("loss", "grad_norm", "entropy", "kl", "sampler_mismatch")


class Loop:
    """One run. All processes run it alike; the one that has the run folder writes."""

    def __init__(self, parts: Parts, folder: Path, run: RunFolder | None, view: View) -> None:
        self.parts, self.recipe, self.trainer, self.world = parts, parts.recipe, parts.trainer, parts.world
        self.folder, self.run, self.view = folder, run, view
        self.checkpoints = Checkpoints(folder / "checkpoints")
        self.learns = self.recipe.method != "gepa"
        self.evolves = self.recipe.method != "rl"
        self.distills = self.recipe.method == "distill"
        self.stages = parts.task if isinstance(parts.task, Stages) else None
        self.stream = open_stream(parts.task, self.recipe.slow.problems, derive_seed(self.recipe.seed, "stream"))
        self.seed_context = Context(dict(parts.seed_texts))
        self.fast = self._fast_loop() if self.evolves else None
        # What a checkpoint holds beside the trainer's part:
        self.step = 0
        self.pool = Pool.from_texts(parts.seed_texts)
        self.memory = Memory(self.recipe.fast, evolves=self.evolves)
        self.ledger, self.written = Ledger(), Ledger()  # booked, and of that what is in the rows of ledger.jsonl
        self.seconds: dict[str, float] = {}
        self.began = time.perf_counter()  # moved so that what has passed since is the time spent on training

    def train(self, checkpoint: Path | None = None) -> None:
        """Run to the end, from a checkpoint where one is given."""
        if checkpoint is not None:
            restore_checkpoint(self, checkpoint)
        self.view.start(str(self.folder), self.recipe, self.step, self.ledger.training_rollouts)
        updates = self.updates()
        if not self.learns:
            for _ in updates:
                raise AssertionError("frozen weights take no updates")
        elif not self.ended:
            self.trainer.follow(updates, checkpoint)

    def updates(self) -> Iterator[Update]:
        """The method: cycles of looking ahead, evolving the contexts, and T updates under them."""
        recipe, problems, length = self.recipe, self.recipe.slow.problems, self.recipe.fast.cycle
        if self.step == 0:
            evaluate_now(self)
            self._write_ledger()
        while not self.ended:
            position = self.step * problems
            if self.evolves and self.step % length == 0:
                self.pool = self._evolve(self.step // length, self.stream.take(position, length * problems))
            if self.learns:
                minibatch, contexts = self.stream.take(position, problems), self.pool.active(recipe.slow.group)
                rollouts, played, timing = self._play_slow(
                    minibatch, [self.seed_context] if self.distills else contexts
                )
                self._draft()
                last = self.step + 1 == recipe.slow.steps or self._rollouts_spent
                update = (
                    self._distillation(rollouts, contexts, last)
                    if self.distills
                    else build_update(rollouts, recipe.slow, self.step + 1, last)
                )
                self.parts.sampler.rest()
                started = time.perf_counter()
                yield update
                self.seconds["update"] = time.perf_counter() - started
                if seconds := self.parts.sampler.sync():
                    self.seconds["sync"] = seconds
            self.step += 1
            if self.learns:
                self._record(rollouts, played, update, timing)
            self._finish_step()

    @property
    def ended(self) -> bool:
        """The steps are done, or the rollouts."""
        return self.step >= self.recipe.slow.steps or self._rollouts_spent

    @property
    def _rollouts_spent(self) -> bool:
        return self.recipe.rollouts is not None and self.ledger.training_rollouts >= self.recipe.rollouts

    # The slow loop -----------------------------------------------------------------------------------------------------

    def _play_slow(
        self, minibatch: Sequence[Example], contexts: Sequence[Context]
    ) -> tuple[list[Rollout], list[Rollout], Timing]:
        """The rollouts of a step, and those of them that were played for it: what is in the cache is claimed first."""
        group = self.recipe.slow.group
        examples = [example for example in minibatch for _ in range(group)]
        pairs = list(zip(examples, compose(contexts, len(minibatch), group), strict=True))
        claimed = self.memory.cache.claim(pairs, self.step)
        played, timing = self.parts.player.play(
            [pair for pair, waiting in zip(pairs, claimed, strict=True) if waiting is None],
            self.recipe.sampling.training(),
            policy_step=self.step,
            seed=derive_seed(self.recipe.seed, "slow", self.step),
        )
        self._book("slow", played, timing)
        self.ledger.book("slow", reused=len(pairs) - len(played))
        self.memory.trained(played)
        return fill(claimed, played), played, timing

    def _distillation(self, rollouts: Sequence[Rollout], contexts: Sequence[Context], last: bool) -> Update:
        """What the student wrote, each rollout with the prompts that its teacher, one of the contexts, reads."""
        slow, teacher = self.recipe.slow, self.trainer.teacher
        assert teacher is not None, "the recipe's method"
        if self.step % self.recipe.fast.cycle == 0:
            teacher.freeze()
        teachers = compose(contexts, len(rollouts) // slow.group, slow.group)
        prompts = replay(self.parts.player, rollouts, teachers)
        if lost := prompts.count(None):
            self.ledger.book("slow", faults={"replay": lost})
        return build_distillation(rollouts, prompts, slow, self.step + 1, last)

    def _record(self, rollouts: Sequence[Rollout], played: Sequence[Rollout], update: Update, timing: Timing) -> None:
        """A row of numbers for the step just made."""
        scores = [rollout.score for rollout in rollouts]
        by_context: dict[str, list[float]] = {}
        for rollout in rollouts:
            by_context.setdefault(rollout.context.id, []).append(rollout.score)
        logs = self.trainer.last_logs
        self.seconds |= {"sampling": timing.sampling, "grading": timing.grading}
        row: dict[str, Any] = {
            "step": self.step,
            "cycle": (self.step - 1) // self.recipe.fast.cycle,
            **self.stage_row(),
            "reward": float(np.mean(scores)),
            "reward_std": float(np.std(scores)),
            # Claimed rollouts were drawn before their contexts were chosen by them; they train, but would flatter a mean.
            "reward_played": float(np.mean([rollout.score for rollout in played])) if played else None,
            "rewards": {identifier: float(np.mean(values)) for identifier, values in by_context.items()},
            "contexts": len(by_context),
            "zero_variance": update.zero_variance,
            "trained_rows": len(update.rows),
            "response_length": float(np.mean([rollout.completion_tokens for rollout in rollouts])),
            "cut_off": float(np.mean(["cut_off" in rollout.faults for rollout in rollouts])),
            # Of a step that trained nothing these are not known, rather than 0.
            **{key: logs.get(key) if update.rows else None for key in TRAINED},
            **({"distillation": logs.get("distillation") if update.rows else None} if self.distills else {}),
            "learning_rate": logs.get("learning_rate"),
            "seconds": sum(self.seconds.values()),
            "phases": dict(self.seconds),
            **self.spent_row(),
        }
        self.seconds.clear()
        if self.run:
            self.run.append("metrics", row)
            if self.recipe.output.save_rollouts:
                self.run.save_rollouts(self.step, rollouts)
        numbers = {
            key: row[key]
            for key in ("reward", "reward_std", "zero_variance", "response_length", "cut_off", *self.spent_row())
        }
        self.trainer.report({f"fastslow/{key}": float(value) for key, value in numbers.items()})
        self.view.step(self.step, self.recipe.slow.steps, row)

    def _book(self, purpose: Purpose, rollouts: Sequence[Rollout], timing: Timing) -> None:
        self.ledger.book_rollouts(purpose, rollouts, timing.total)
        self.view.spent(self.ledger.training_rollouts)

    def _write_ledger(self) -> None:
        """A row with what was booked since the last one."""
        cycle = max(self.step - 1, 0) // self.recipe.fast.cycle
        if self.run and (spent := self.ledger.since(self.written).spent()):
            self.run.append("ledger", {"step": self.step, "cycle": cycle, "spent": spent})
        self.written = self.ledger.snapshot()

    def spent_row(self) -> dict[str, int]:
        """Rollouts by what they were for."""
        return {
            "rollouts_slow": self.ledger["slow"].rollouts,
            "rollouts_reused": self.ledger["slow"].reused,
            "rollouts_fast": self.ledger.total(FAST).rollouts,
            "rollouts_evaluation": self.ledger["evaluation"].rollouts,
        }

    def stage_row(self) -> dict[str, str]:
        """The stage that the last step was made in, where there are stages."""
        return {"stage": self.stages.behind(self.step).name} if self.stages else {}

    # The fast loop -----------------------------------------------------------------------------------------------------

    def _fast_loop(self) -> FastLoop:
        recipe, parts = self.recipe.fast, self.parts
        reflection = recipe.reflection
        policy = reflection.kind == "policy"
        sampling = Sampling(max(reflection.temperature, 1e-3), 1.0, reflection.max_tokens)
        chat = PolicyChat(parts.sampler, parts.chat, sampling, parts.policy.max_length, self.world) if policy else None
        reflector = build_reflector(reflection, chat, lambda name: load_to_ask(name, parts.policy.device))
        return FastLoop(recipe, reflector, self._play_fast, parts.chat.count, self.world, collective=policy)

    def _play_fast(self, pairs: Sequence[tuple[Example, Context]], purpose: str, seed: int) -> list[Rollout]:
        rollouts, timing = self.parts.player.play(
            pairs, self.recipe.sampling.training(), policy_step=self.step, seed=seed
        )
        self._book(purpose, rollouts, timing)  # type: ignore[arg-type]
        self.memory.scored(purpose, rollouts)
        return rollouts

    def _evolve(self, cycle: int, ahead: Sequence[Example]) -> Pool:
        """One cycle of the fast loop. A cycle found in the run folder was finished before an interruption: it stands."""
        carried = [member.context.id for member in self.pool.members]
        done = self.world.from_main(lambda: self.run.cycle(cycle, self.memory.kept) if self.run else None)
        if done and done["policy_step"] == self.step and done["carried"] == carried:
            spent = Ledger.from_dict(done["spent"])
            self.ledger.add(spent)
            self.began -= spent.total().seconds
            self.memory.restore(done.get("memory"), ahead)
            return Pool.from_dict(done["population"])
        assert self.fast is not None
        before, started = self.ledger.snapshot(), time.perf_counter()
        drafts = self._drafts(cycle)
        evidence = self.memory.open_cycle(self._same_task())
        scored_by = evidence if self.recipe.fast.rescore == "from-rollouts" else None
        anchors, budget = choose_anchors(ahead, scored_by, self.recipe.fast.anchors), self.memory.budget
        found = self.fast.evolve(
            self.pool,
            anchors,
            cycle=cycle,
            policy_step=self.step,
            seed=derive_seed(self.recipe.seed, "fast", cycle),
            progress=lambda text: self.view.cycle(cycle, text),
            budget=budget,
            evidence=evidence,
            drafts=drafts,
        )
        self._book_reflection()
        for purpose, count in found.reused.items():
            self.ledger.book(purpose, reused=count)  # type: ignore[arg-type]
        self.seconds["fast"] = time.perf_counter() - started
        best, active = found.pool.best, found.pool.active(self.recipe.slow.group)
        self.memory.close_cycle(active, ahead, found.found)
        if self.run:
            self.run.save_cycle(
                cycle,
                {
                    "cycle": cycle,
                    "policy_step": self.step,
                    "carried": carried,
                    "anchors": [example.id for example in anchors],
                    "best": best.context.id,
                    "active": [context.id for context in active],
                    "population": found.pool.to_dict(),
                    "edits": [asdict(edit) for edit in found.edits],
                    "contexts": [{"id": context.id, **asdict(context)} for context in found.contexts],
                    "generations": found.generations,
                    "faults": found.faults,
                    "budget": budget,
                    "spent": self.ledger.since(before).to_dict(),
                },
                self.memory.to_data(),
            )
        for name, count in found.faults.items():
            if name == "reflection_failed":
                self.view.message(
                    f"cycle {cycle}: {count} reflection(s) failed; the population goes on without", "warning"
                )
        self.view.context(best.context.id, best.mean, "\n".join(best.context.texts.values()))
        return found.pool

    def _same_task(self) -> bool:
        """Whether the next problems are of the task that the last ones were of."""
        return self.stages is None or self.stages.at(self.step).name == self.stages.behind(self.step).name

    def _draft(self) -> None:
        """Have edits drafted while the model trains, unless an interrupted run has finished the next cycle already."""
        cycle = self.step // self.recipe.fast.cycle
        due = self.evolves and self.memory.drafts_due(self.step, self.recipe.slow.steps)
        if due and self.run and self.run.cycle(cycle + 1) is None:
            self.memory.desk.start(self._drafting(cycle))

    def _drafts(self, cycle: int) -> list[Draft]:
        """The drafts for a cycle, made now where nobody has begun."""
        if not self.recipe.fast.overlap or not cycle:
            return []
        return self.world.from_main(lambda: self.memory.desk.collect(self._drafting(cycle - 1)))

    def _drafting(self, cycle: int) -> Callable[[], list[Draft]]:
        assert self.fast is not None
        # A tokenizer is not for two threads at once: the drafts have a copy.
        count = copy.deepcopy(self.parts.chat).count
        seed = derive_seed(self.recipe.seed, "drafts", cycle)
        return self.memory.drafting(cycle, self.pool, self.fast.reflector, count, seed)

    def _book_reflection(self) -> None:
        """Move what the reflector has counted since the last time onto the ledger."""
        assert self.fast is not None
        usage = self.fast.reflector.usage
        faults = {"retries": usage.retries, "failures": usage.failures}
        self.ledger.book(
            "reflection",
            calls=usage.calls,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=usage.seconds,
            cost=usage.cost,
            faults={name: count for name, count in faults.items() if count},
        )
        self.fast.reflector.usage = type(usage)()

    # Ending a step ---------------------------------------------------------------------------------------------------

    def _finish_step(self) -> None:
        recipe, last = self.recipe, self.ended
        if last or self._evaluation_due():
            evaluate_now(self)
        if last and self.fast:
            self.memory.desk.collect(list)  # drafts that no cycle will ask for were paid for all the same
            self._book_reflection()
        self._write_ledger()
        if last or self.step % recipe.output.checkpoint_every == 0:
            save_checkpoint(self, last)

    def _evaluation_due(self) -> bool:
        every, cycle = self.recipe.evaluation.every, self.recipe.fast.cycle
        if self.stages and self.step in self.stages.ends:
            return True
        if not every or self.step % every:
            return False
        # With frozen weights nothing changes but by a cycle, which comes before the first of its steps.
        return self.learns or (self.step - 1) // cycle > (self.step - 1 - every) // cycle
