"""Fast-Slow Training, the method itself.

    Φ ← {seed text}
    for each cycle: look ahead at the problems of the next T steps; evolve Φ on them under the current weights (GEPA);
    then T times: sample one group of G rollouts per problem, G/K under each context; make one CISPO update.

`Loop._run` is this algorithm, top to bottom. RL-only skips the fast loop, GEPA-only skips the updates. FST-distill samples
under the seed text and distils the contexts, its teachers, into the weights (slow/update.py). Stages change only the
problems in the stream: nothing is reset at a boundary, and a cycle across one looks ahead at problems of both stages.

Differences from the paper: every score records the step of the policy that earned it; contexts carried into a cycle are
re-scored at its start, and the ledger lists that cost separately; with fewer than K contexts, the largest number of them
that divides G is used; the context with the best mean score is always kept, on the Pareto front or not; evaluation uses the
context that is best on training problems, never on validation problems; with the default loss the KL penalty is a mean over
all tokens of an update, where the policy loss is a mean over problems.
`slow.rescue` lets answers that came with help join failed groups (slow/rescue), `slow.withdraw` samples a growing share of
rollouts under the seed text (docs/rescue.md); by default there is neither.
`state.memory` holds the rollouts that the loops share where the recipe says so (docs/rollouts.md, fast/memory), and what a
task keeps of them (docs/discover.md); by default there is none.

A cycle enters these files, which a reader meets in this order:
- state.py (what a run holds), records.py (what the loops pass on);
- fast/evolution.py (the cycle and its journal), fast/optimizers/base.py and fast/optimizers/gepa.py (the search),
  fast/evaluator.py (plays, books, budget), fast/pool.py (scores, selection), fast/reflection/base.py and
  fast/reflection/lessons.py (edits);
- slow/stream.py (the stream, the groups of a step), slow/update.py (advantages, rows), slow/steady.py (falls, the best
  checkpoint);
- of both loops: rollouts/play.py (a rollout), tasks/base.py (its task), sandbox/process.py (its time limit), models/chat.py
  (its prompts), rollouts/rounds.py (its completions), engine/base.py (the protocol of what samples and trains);
- runs/recorder.py (what is written), with runs/ledger.py, runs/folder.py, runs/files.py and runs/view.py;
- base/world.py (processes, coroutines, seeds) and base/text.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

from fastslow.base.errors import Diverged
from fastslow.base.world import derive_seed
from fastslow.engine.base import Engine, Numbers, Update
from fastslow.evaluation.measure import Measured, measure, measured_contexts
from fastslow.fast.evolution import Evolution
from fastslow.fast.reflection import Reflector
from fastslow.recipe import Recipe
from fastslow.records import Context, Rollout
from fastslow.rollouts.play import Player, Prompts
from fastslow.rollouts.rounds import Group
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Entry, Ledger
from fastslow.runs.recorder import Recorder
from fastslow.runs.view import View
from fastslow.slow.rescue.helpers import Chat
from fastslow.slow.rescue.play import Rescue
from fastslow.slow.steady import point
from fastslow.slow.stream import begin_all, open_stream, shared
from fastslow.slow.update import Rescued, Signal, build_distillation, build_update, require_finite
from fastslow.slow.words import told
from fastslow.state import State
from fastslow.tasks.stages import Stages


class Loop:
    """One run. Every process runs the same code, and all of them make each engine call together."""

    def __init__(
        self,
        recipe: Recipe,
        player: Player,
        seed_texts: Mapping[str, str],
        reflector: Reflector | None,
        folder: Path,
        run: RunFolder | None,
        view: View,
        teachers: Mapping[str, Chat] | None = None,
    ) -> None:
        self.recipe, self.player = recipe, player
        self.engine: Engine = player.engine
        self.sampling = recipe.sampling.training()
        self.learns = recipe.method != "gepa"
        self.distills, self.teaches = recipe.method == "distill", recipe.teaches
        self.stream = open_stream(player.task, recipe.slow.problems, derive_seed(recipe.seed, "stream"))
        self.state = State(recipe, seed_texts, player.task.memory)
        self.seed_context = self.state.seed_context
        self.record = Recorder(recipe, player.task, self.engine, self.state, folder, run, view)
        self.stage_ends = player.task.ends if isinstance(player.task, Stages) else ()
        if run:
            run.rollout_writer.decode = player.chat.answer
            run.write_json("contexts/seed.json", {"id": self.seed_context.id, "texts": dict(seed_texts)})
        self.rescue: Rescue | None = None
        if self.learns and self.state.rescue is not None:
            self.rescue = Rescue(recipe, player, self.stream, teachers or {}, self.record)
        self.evolution: Evolution | None = None
        if recipe.method != "rl":
            assert reflector is not None, "the fast loop needs a reflector"
            self.evolution = Evolution(
                recipe, self.state, player, reflector, book=self.record.book, journal=run, view=view
            )

    def run(self, checkpoint: Path | None = None, spent: Ledger | None = None) -> None:
        """Run to the end, from a checkpoint if given; `spent` is what was spent before the first step."""
        try:
            self._run(checkpoint, spent)
        except Diverged as error:
            raise self.record.diverged(error) from error
        except BaseException as error:
            self.record.rescue(error)
            raise
        finally:
            self.record.close()

    def _run(self, checkpoint: Path | None, spent: Ledger | None) -> None:
        state, problems, length = self.state, self.recipe.slow.problems, self.recipe.fast.cycle
        if checkpoint is not None:
            state.restore(checkpoint, self.stream)
        self.record.begin()
        if spent is not None:
            state.ledger.add(spent)
        if self.learns and not (state.done and state.settled):
            self.engine.prepare(checkpoint)
        if not state.settled:
            self._settle()
        while not state.done:
            position = state.step * problems
            if self.evolution and state.cycle_due:
                before, state.pool = state.pool, self.evolution.evolve(self.stream.take(position, length * problems))
                if not state.pool.ids <= before.ids:  # the fast loop has made progress
                    state.course.idle = 0
            if self.learns:
                self.record.playing()
                groups, played = self._play()
                update, signal = self._update(groups, self._rescue(groups))
            with self.record.completing():
                if self.learns:
                    with state.clock.phase("update"):
                        numbers = self.engine.update(replace(update, rate=state.course.rate))
                    state.clock.split("update", "sync", numbers.get("sync_seconds"))
                state.step, state.settled = state.step + 1, False
                if self.learns:
                    require_finite(update, numbers)
                    self._steady(groups, update, signal, numbers)
                    self.record.step(groups, played, update, signal, numbers)
            if self.learns:
                self.record.require_agreement(numbers.get("sampler_mismatch"))
            self._settle()
            self.player.faulty.end_step()
            self.record.require_progress()

    def _settle(self) -> None:
        """What follows a step: the evaluation and the checkpoint, as far as they are due, and the ledger's row."""
        measured = self._evaluate()
        with self.record.completing():
            if measured:
                self.record.evaluation(*measured)
            self.record.ledger()
            self.state.settled = True
        self.record.checkpoint()
        self.engine.world.stop_together()

    def _play(self) -> tuple[list[Group], list[Rollout]]:
        """The groups of a step, and those of their rollouts that were sampled for it; the cache supplies the others."""
        state, in_play = self.state, self.state.in_play
        contexts = [self.seed_context] if self.distills else state.pool.active(self.recipe.slow.group)
        begin = partial(state.memory.cache.begin if state.memory else begin_all, step=state.step)
        pending = in_play.begin(self.stream, contexts, begin, state.step, state.horizon, self.seed_context)
        seed = derive_seed(self.recipe.seed, "slow", state.step)
        timing = self.player.advance(pending, self.sampling, seed=seed, step=state.step, until=in_play.settled)
        groups = in_play.take()
        taken = [each for group in groups for each in group.members]
        sampled = [each.rollout for each in taken if each.rollout and not each.reused]
        self.player.faulty.count(sampled)
        self.record.book_step(sampled, len(taken) - len(sampled), timing)
        # The fast loop scores the contexts of its pool; of withdrawn rollouts it knows nothing.
        if state.memory:
            state.memory.trained([rollout for rollout in sampled if rollout.context in contexts])
        return groups, sampled

    def _rescue(self, groups: Sequence[Group]) -> list[Rescued]:
        """Answers that come with help where a whole group failed; they join it."""
        if self.rescue is None or self.state.rescue is None:
            return []
        with self.state.clock.phase("rescue"):
            return self.rescue.play(groups, self.state.rescue, self.state.step)

    def _update(self, groups: Sequence[Group], rescued: Sequence[Rescued]) -> tuple[Update, Signal]:
        """The update made from the rollouts of a step, and how much there is to learn from."""
        state, slow = self.state, self.recipe.slow
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        if self.teaches and state.cycle_due:
            self.engine.freeze_teacher()
        if slow.feedback == "rank":
            state.standing, further = state.standing.after([group.rollouts for group in groups], state.step)
            state.trust = state.trust.after(rollouts, further)
            return build_update(rollouts, slow, state.step + 1, ranks=(state.trust, further))
        if slow.feedback == "distil":
            prompts = self._replay(rollouts, [told(rollout) for rollout in rollouts])
            return build_update(rollouts, slow, state.step + 1, prompts=prompts)
        if not self.distills:
            return build_update(rollouts, slow, state.step + 1, rescued)
        teachers = shared(state.pool.active(slow.group), slow.group) * (len(rollouts) // slow.group)
        return build_distillation(rollouts, self._replay(rollouts, teachers), slow, state.step + 1)

    def _replay(self, rollouts: Sequence[Rollout], teachers: Sequence[Context | None]) -> list[Prompts | None]:
        """The teacher's prompts of each rollout; what cannot be replayed is booked."""
        prompts = self.player.replay(rollouts, teachers)
        if lost := prompts.count(None) - teachers.count(None):
            self.state.ledger.book("slow", Entry(faults={"replay": lost}))
        return prompts

    def _steady(self, groups: Sequence[Group], update: Update, signal: Signal, numbers: Numbers) -> None:
        """Note the reward of the step, and whether its checkpoint is the best. A fall is answered by the weights of the best
        checkpoint and smaller steps from there."""
        state, course = self.state, self.state.course
        course.idle = 0 if update.rows else course.idle + 1
        played = [
            [each.rollout.score for each in group.members if each.rollout and not each.reused] for group in groups
        ]
        # A task that shows what it was answered is another one in every step: its rewards cannot be compared.
        if (rewards := [fmean(scores) for scores in played if scores]) and state.kept is None:
            entropy = numbers.get("entropy") if update.rows else None
            course.add(point(state.step, rewards, signal.zero_variance, entropy))
        if state.step in self.stage_ends and not state.done:
            course.restart()
        elif not self.distills and (fall := course.fall(state.step)):
            if checkpoint := self.record.fell(*fall):
                self.engine.load(checkpoint)
                course.restored()
        elif self.record.affordable() and course.improved(state.step):
            course.keep(state.step)

    def _evaluate(self) -> tuple[Measured, float] | None:
        """What is measured now, if anything is due, after how many seconds of training."""
        state = self.state
        if not state.evaluation_due(self.stage_ends):
            return None
        seconds = state.clock.seconds
        with state.clock.stopped():
            best = state.pool.best.context
            self.record.measuring(len(measured_contexts(self.seed_context, best)))
            return measure(self.recipe, self.player, self.seed_context, state.step, best), seconds
