"""`fastslow internalize`: train a run's weights to do under the seed text what they do with the run's text.

    solved ← the best of the run's saved rollouts, the newest of every problem, and where asked for new ones under its best
             text
    for each epoch: supervised learning on one of them per problem, weighted by its score, under the seed text, until
    problems that are held back are predicted no better; keep the best epoch
    then, where asked for: on-policy distillation, with the run's weights under its best text as the teacher

Without these options, only evaluation samples rollouts. The result is a folder that other commands read as a run whose
only text is the seed text. It appears complete or not at all, and the run is only read: an interrupted command starts over.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fastslow.base.errors import Diverged, RunError
from fastslow.base.world import derive_seed
from fastslow.engine.base import Numbers, Update
from fastslow.engine.local.out_of_memory import refused
from fastslow.evaluation.measure import measure
from fastslow.launch.assembly import (
    AtStep,
    Parts,
    Snapshot,
    assemble,
    changed,
    find_world,
    open_snapshot,
    without_servers,
)
from fastslow.launch.start import on_main
from fastslow.recipe import Recipe, TaskRecipe
from fastslow.recipe.parts import LOSS
from fastslow.records import Context, Feedback, Rollout
from fastslow.rollouts.play import Player, Prompts
from fastslow.runs.folder import INTERNALIZED, RunFolder
from fastslow.runs.lock import Lock
from fastslow.runs.recorder import Recorder
from fastslow.runs.rollout_files import SolvedRollout, read_solved
from fastslow.runs.trust import remember, require_trust
from fastslow.runs.view import View, make_view
from fastslow.slow.stream import open_stream
from fastslow.slow.update import Solved, build_distillation, build_imitation, epoch_batches, hold_back, require_finite
from fastslow.state import State
from fastslow.tasks import Task
from fastslow.tasks.registry import build_task

UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Settings:
    """How the text is learnt."""

    epochs: int = 30
    batch: int = 32
    learning_rate: float | None = None
    """The run's by default."""
    per_problem: int = 4
    held_back: float = 0.1
    patience: int = 3
    score: float | None = None
    """The lowest score to learn from; None takes the best rollouts of each problem. They count by their scores."""
    sample: int = 0
    steps: int = 0
    microbatch: int | None = None
    """The run's by default."""


def internalize_run(
    folder: str | Path,
    out: str | Path | None = None,
    settings: Settings | None = None,
    *,
    step: AtStep = None,
    also: Mapping[str, Any] | None = None,
    task: Task | None = None,
    trust: bool = False,
    view: View | None = None,
) -> dict[str, Any]:
    """Train, measure before and after, write the folder, and return what its internalized.json holds.

    `also` is a task, as in a recipe, to measure forgetting on. `task` replaces the run's.
    """
    settings = settings or Settings()
    snapshot = open_snapshot(folder, step)
    run, place = snapshot.run, Path(out or Path(folder) / INTERNALIZED).absolute()
    _require_text(snapshot)
    if place.exists():
        raise RunError(f"'{place}' exists; remove it, or choose another folder with --out")
    trained = require_trust(run.path, run.recipe, trust)
    stored = read_solved(run, settings.score, settings.per_problem)
    world = find_world(trained)
    recipe = _recipe(trained, settings, world.size)
    # The engine loads the base model too, to measure the divergence from it.
    loaded = changed(recipe, evaluation={"divergence": True})
    if settings.steps:
        loaded = loaded.model_copy(update={"method": "distill"})
    other = build_task(recipe.model_copy(update={"task": TaskRecipe(**also), "stages": []})) if also else None
    if view is None or not world.main:
        view = make_view(Console(quiet=True))
    if not is_finished(snapshot):
        view.message(f"'{run.path}' is not finished; its checkpoint of step {snapshot.step} is used", "warning")
    work = place.with_name(UNFINISHED + place.name)
    made = on_main(world, lambda: _begin(work, recipe))
    try:
        parts = assemble(loaded, work, world, task)
        now = f"lower --microbatch, now {recipe.slow.microbatch} (the update stays the same)"
        with closing(parts.engine), refused(f"{now}, or free some (nvidia-smi shows what uses it)"):
            numbers = _Job(snapshot, settings, recipe, loaded, parts, work, made, view).run(stored, other)
    except BaseException:
        if made:
            made.close()
            shutil.rmtree(work, ignore_errors=True)
        raise
    if made:
        made.close()
        work.rename(place)
        remember(place, recipe)
    return numbers


def _require_text(snapshot: Snapshot) -> None:
    run = snapshot.run
    if run.recipe.method == "rl":
        raise RunError(f"'{run.path}' trained under the seed text only (method=rl): it has no text to internalize")
    if snapshot.pool.best.context.id == (run.read_json("contexts/seed.json") or {}).get("id"):
        raise RunError(f"the best context of '{run.path}' is its seed text: it has no text to internalize")


def _recipe(run: Recipe, settings: Settings, processes: int) -> Recipe:
    """The recipe of the result: trained weights that read the seed text only, as in RL only."""
    run = without_servers(run)
    group = run.slow.group
    problems = max(1, settings.batch // group)
    rollouts = problems * group
    most = settings.microbatch or run.slow.microbatch
    fitting = () if most == "auto" else (size for size in range(1, most + 1) if rollouts % (size * processes) == 0)
    slow = {
        "problems": problems,
        "microbatch": most if most == "auto" else max(fitting, default=1),
        "learning_rate": settings.learning_rate or run.slow.learning_rate,
        "loss": LOSS.options("cispo")(name="cispo"),
    }
    output = {"report_to": [], "keep_checkpoints": 1}
    return changed(run, slow=slow, output=output).model_copy(update={"method": "rl", "rollouts": None})


def _begin(work: Path, recipe: Recipe) -> RunFolder:
    """A new folder; what an interrupted command has left there is removed."""
    if work.exists():
        Lock(work / "lock").release()  # raises if another process is at work there
        shutil.rmtree(work)
    return RunFolder.create(work, recipe)


class _Job:
    """The training and its measurements; every process makes the same calls, the main one writes."""

    def __init__(
        self,
        snapshot: Snapshot,
        settings: Settings,
        recipe: Recipe,
        loaded: Recipe,
        parts: Parts,
        place: Path,
        folder: RunFolder | None,
        view: View,
    ) -> None:
        self.snapshot, self.settings, self.recipe, self.loaded = snapshot, settings, recipe, loaded
        self.player, self.engine, self.view = parts.player, parts.engine, view
        self.seed, self.best = Context(dict(parts.seed_texts)), snapshot.pool.best.context
        self.state = State(recipe, parts.seed_texts)
        self.state.step = snapshot.step
        self.folder = folder
        self.record = Recorder(recipe, parts.task, parts.engine, self.state, place, folder, view)

    def run(self, stored: Mapping[str, Sequence[SolvedRollout]], other: Task | None) -> dict[str, Any]:
        if self.snapshot.weights is not None:
            self.engine.load(self.snapshot.weights)
        self.engine.prepare()
        if self.settings.steps:
            self.engine.freeze_teacher()
        before = self._measure(other)
        sampled = self._sampled()
        solved = self._under_seed([*sampled, *self._recorded(stored)])
        epochs = self._imitate(solved)
        distillation = self._distil()
        after = self._measure(other)
        self.player.faulty.end_step()
        reward, reached = before["best context"]["mean"], after["seed"]["mean"]
        numbers = {
            "step": self.snapshot.step,
            "finished": is_finished(self.snapshot),
            "settings": {**asdict(self.settings), "learning_rate": self.recipe.slow.learning_rate},
            "problems": len(solved),
            "rollouts": sum(map(len, solved.values())),
            "sampled": len(sampled),
            "epochs": epochs,
            "distillation": distillation,
            "before": before,
            "after": after,
            "kept": reached / reward if reward else None,
            "seconds": self.state.clock.seconds,
        }
        if self.folder:
            self.folder.write_json(f"{INTERNALIZED}.json", numbers)
            if not self.recipe.stages:
                self.folder.write_recipe(changed(self.recipe, slow={"steps": self.state.step}))
            self.folder.set_status("finished", steps=self.state.step)
        return numbers

    def _recorded(self, stored: Mapping[str, Sequence[SolvedRollout]]) -> list[Rollout]:
        """The stored rollouts of problems that the task still has."""
        examples = {each.id: each for each in self.player.task.examples("train") if each.id in stored}
        return [
            Rollout(examples[each.example], self.best, each.policy_step, each.turns, Feedback(each.score))
            for problem in examples
            for each in stored[problem]
        ]

    def _sampled(self) -> list[Rollout]:
        """Solved rollouts under the best text, one for each of the problems that would come next in the run's stream."""
        run, count = self.snapshot.run.recipe, self.settings.sample
        if not count:
            return []
        stream = open_stream(self.player.task, run.slow.problems, derive_seed(run.seed, "stream"))
        cycles = math.ceil(self.snapshot.step / run.fast.cycle)
        rollouts, timing = self.player.play(
            [(example, self.best) for example in stream.take(cycles * run.fast.cycle * run.slow.problems, count)],
            run.sampling.training(),
            policy_step=self.snapshot.step,
            seed=derive_seed(run.seed, "internalize"),
        )
        self.record.book("slow", rollouts, timing)
        least = self.settings.score
        good = (each for each in rollouts if (each.score > 0 if least is None else each.score >= least))
        return [each for each in good if each.turns and not each.faults]

    def _under_seed(self, rollouts: Sequence[Rollout]) -> dict[str, list[Rollout]]:
        """The rollouts by problem, as if they had been played under the seed text; without those that could not be."""
        found: dict[str, list[Rollout]] = {}
        for rollout, prompts in zip(rollouts, self._replayed(rollouts, self.seed), strict=True):
            if prompts is not None:
                asked = zip(rollout.turns, prompts, strict=True)
                turns = tuple(replace(turn, prompt_ids=prompt) for turn, prompt in asked)
                found.setdefault(rollout.example.id, []).append(replace(rollout, turns=turns))
        if not found:
            raise RunError(
                f"none of the solved problems of '{self.snapshot.run.path}' can be asked under the seed text; check that the "
                "data of the task are still those of the run"
            )
        if self.settings.score is not None:
            return found
        best = {problem: max(each.score for each in rollouts) for problem, rollouts in found.items()}
        return {problem: [each for each in found[problem] if each.score == best[problem]] for problem in found}

    def _imitate(self, solved: Solved) -> list[dict[str, Any]]:
        """Supervised learning; at the end, the weights are those of the best epoch, which has a checkpoint."""
        settings, state, seed = self.settings, self.state, self.recipe.seed
        learnt, held_back = hold_back(list(solved), settings.held_back, seed)
        rows: list[dict[str, Any]] = [{"epoch": 0, "step": state.step, "held_back_loss": self._loss(solved, held_back)}]
        best = rows[0]
        for epoch in range(1, settings.epochs + 1):
            losses = []
            for batch in epoch_batches(solved, learnt, settings.batch, epoch - 1, seed):
                state.step += 1
                losses.append(self._update(build_imitation(batch, state.step))["loss"] or 0.0)
            loss = self._loss(solved, held_back)
            rows.append({"epoch": epoch, "step": state.step, "loss": sum(losses) / len(losses), "held_back_loss": loss})
            self.view.message(f"epoch {epoch}: loss {rows[-1]['loss']:.3f}" + _shown(", on held-back problems", loss))
            if best is rows[0] or loss is None or loss < best["held_back_loss"]:
                best = rows[-1]
                if loss is not None or epoch == settings.epochs:
                    self.record.save()
            elif epoch - best["epoch"] >= settings.patience:
                break
        if best is not rows[-1]:
            state.step = best["step"]
            self.engine.load(self.record.checkpoints.get(state.step))
        return rows

    def _update(self, update: Update) -> Numbers:
        """One optimizer step; a number that is not finite ends the command, as it ends a run, and nothing is kept."""
        numbers = self.engine.update(update)
        try:
            require_finite(update, numbers)
        except Diverged as error:
            raise RunError(
                f"internalizing '{self.snapshot.run.path}' diverged in step {update.step}: {error}; lower --learning-rate, "
                f"now {self.recipe.slow.learning_rate:g}"
            ) from None
        return numbers

    def _loss(self, solved: Solved, problems: Sequence[str]) -> float | None:
        """Mean cross-entropy per token of the newest rollout of each problem, under the seed text."""
        rollouts = [solved[problem][0] for problem in problems]
        scores = self.engine.score([turn for rollout in rollouts for turn in rollout.turns]) if rollouts else []
        logprobs = [logprob for each in scores for logprob in each.policy]
        return -sum(logprobs) / len(logprobs) if logprobs else None

    def _distil(self) -> list[float | None]:
        """On-policy distillation from the run's weights under its best text, one rollout a problem; the KL of each step."""
        state, seed = self.state, derive_seed(self.recipe.seed, "internalize")
        count = self.recipe.slow.problems * self.recipe.slow.group
        alone = changed(self.recipe, slow={"group": 1}).slow
        stream = open_stream(self.player.task, count, seed)
        found: list[float | None] = []
        for number in range(self.settings.steps):
            minibatch = stream.take((self.snapshot.step + number) * count, count)
            rollouts, timing = self.player.play(
                [(example, self.seed) for example in minibatch],
                self.recipe.sampling.training(),
                policy_step=state.step,
                seed=derive_seed(seed, number),
            )
            self.record.book("slow", rollouts, timing)
            state.step += 1
            prompts = self._replayed(rollouts, self.best)
            numbers = self._update(build_distillation(rollouts, prompts, alone, state.step)[0])
            found.append(numbers.get("distillation"))
            reward = sum(rollout.score for rollout in rollouts) / len(rollouts)
            self.view.message(
                f"distillation {number + 1} of {self.settings.steps}: reward {reward:.3f}" + _shown(", KL", found[-1])
            )
            self.player.faulty.end_step()
        if found:
            self.record.save()
        return found

    def _replayed(self, rollouts: Sequence[Rollout], context: Context) -> list[Prompts | None]:
        return self.player.replay(rollouts, [context] * len(rollouts))

    def _measure(self, other: Task | None) -> dict[str, dict[str, Any]]:
        """Reward and KL from the base model under the seed text and under the best text, and on another task."""
        state = self.state
        seconds = state.clock.seconds
        with state.clock.stopped():
            measured = measure(self.loaded, self.player, self.seed, state.step, self.best)
            results = dict(measured.results)
            self.record.evaluation(measured, seconds)
            if other is not None:
                player = Player(other, self.engine, self.player.chat, self.loaded.grading)
                seed = Context(dict(other.seed_texts))
                results["other task"] = measure(self.loaded, player, seed, state.step, seed).results["seed"]
        return results


def is_finished(snapshot: Snapshot) -> bool:
    return snapshot.run.info.get("status") == "finished"


def _shown(label: str, value: float | None) -> str:
    return "" if value is None else f"{label} {value:.3f}"
