"""The state of a run that a checkpoint saves besides the engine's: step, pool, ledger, memory, groups in play, course,
clock."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from pathlib import Path

from fastslow.fast.memory import Memory
from fastslow.fast.pool import Pool
from fastslow.fast.standing import Standing
from fastslow.recipe import Recipe
from fastslow.runs import files
from fastslow.runs.ledger import Ledger
from fastslow.slow.rescue.accounts import Accounts
from fastslow.slow.steady import Course
from fastslow.slow.stream import InPlay, Stream
from fastslow.slow.words import Trust
from fastslow.tasks.base import TaskMemory

STATE, MEMORY, AHEAD, WORDS = "state.json", "memory.json.gz", "ahead.json.gz", "words.json.gz"


class Clock:
    """Seconds spent on training in total, and on the current step by phase."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._halted: float | None = None
        self.phases: dict[str, float] = {}

    @property
    def seconds(self) -> float:
        return (self._halted or time.perf_counter()) - self._started

    def halted(self) -> Clock:
        """This clock as it is now; it does not run."""
        clock = copy(self)
        clock._halted = time.perf_counter()
        return clock

    def add(self, seconds: float) -> None:
        """Count seconds that were spent before this process started."""
        self._started -= seconds

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.phases[name] = time.perf_counter() - started

    def count(self, phases: Mapping[str, float]) -> None:
        """Add seconds to phases that may come several times in a step."""
        for name, seconds in phases.items():
            self.phases[name] = self.phases.get(name, 0.0) + seconds

    def split(self, phase: str, part: str, seconds: float | None) -> None:
        """Count some seconds of a phase as a phase of their own."""
        if seconds:
            self.phases[phase] -= seconds
            self.phases[part] = seconds

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Do not count evaluation as training time."""
        started = time.perf_counter()
        yield
        self._started += time.perf_counter() - started


class State:
    """The state of a run between two steps: the same on every process; the main process saves it."""

    def __init__(self, recipe: Recipe, seed_texts: Mapping[str, str], kept: TaskMemory | None = None) -> None:
        self.recipe = recipe
        self.step = 0
        """Slow steps completed."""
        self.pool = Pool.from_texts(seed_texts)
        self.seed_context = self.pool.best.context
        self.ledger = Ledger()
        self.memory = Memory.of(recipe, kept)
        """The rollouts that the loops share, where the recipe says so, and what the task keeps."""
        self.in_play = InPlay(recipe)
        """Between two steps: the groups that were begun before their step; none unless `sampling.ahead` is set."""
        self.standing, self.trust = Standing(), Trust()
        """What was said of the latest rollouts, and whether words predict rewards; nothing unless `slow.feedback: rank`."""
        self.rescue = None if recipe.slow.rescue.name == "none" else Accounts()
        """What helpers have done, where the recipe has some."""
        self.course = Course(recipe.fast.cycle if recipe.method == "fst" else None)
        """How the rewards of the present stage went; without updates it stays empty."""
        self.clock = Clock()
        self.settled = False
        """Whether the last step's evaluation, if one is due, and its ledger row are written."""
        self.written = Ledger()
        """The part of the ledger that is in rows of ledger.jsonl."""

    def copy(self) -> State:
        """The state as it is now, with its records shared: they never change."""
        held, recipe = copy(self), self.recipe
        held.ledger, held.written = self.ledger.snapshot(), self.written.snapshot()
        known = {id(each): each for each in (recipe, recipe.fast)}
        held.memory, held.in_play = deepcopy(self.memory, known), deepcopy(self.in_play, known)
        held.rescue, held.course = self.rescue and self.rescue.copy(), copy(self.course)
        held.clock = self.clock.halted()
        return held

    @property
    def kept(self) -> TaskMemory | None:
        """What the task keeps of the run's rollouts, if anything."""
        return self.memory.task if self.memory else None

    @property
    def done(self) -> bool:
        """All steps are done, the rollout budget is spent, or the task has what it was played for."""
        if self.kept is not None and self.kept.done:
            return True
        spent = self.recipe.rollouts is not None and self.ledger.training_rollouts >= self.recipe.rollouts
        return spent or self.step >= self.recipe.slow.steps

    @property
    def cycle(self) -> int:
        """The cycle that the next step belongs to."""
        return self.step // self.recipe.fast.cycle

    @property
    def cycle_due(self) -> bool:
        return self.step % self.recipe.fast.cycle == 0

    def evaluation_due(self, stage_ends: Sequence[int]) -> bool:
        """Whether to evaluate after this step: before and after training, after each stage, and as the recipe says."""
        step, every, cycle = self.step, self.recipe.evaluation.every, self.recipe.fast.cycle
        if not every or step == 0 or self.done or step in stage_ends:
            return bool(every)
        # With frozen weights only a cycle changes anything, and it runs before the first of its steps.
        changed = self.recipe.method != "gepa" or (step - 1) // cycle > (step - 1 - every) // cycle
        return step % every == 0 and changed

    @property
    def last_cycle(self) -> int:
        """The cycle of the last completed step."""
        return max(self.step - 1, 0) // self.recipe.fast.cycle

    @property
    def horizon(self) -> int:
        """The step before which every begun group is trained on: the end of the run or, with a fast loop, of the cycle."""
        recipe, end = self.recipe, self.recipe.slow.steps
        if recipe.rollouts is not None:  # a step spends as many rollouts as it has, or fewer
            left = max(recipe.rollouts - self.ledger.training_rollouts, 1)  # a cycle may have spent the rest
            end = min(end, self.step + math.ceil(left / (recipe.slow.problems * recipe.slow.group)))
        return end if recipe.method == "rl" else min(end, (self.cycle + 1) * recipe.fast.cycle)

    def save(self, folder: Path) -> None:
        data = {
            "step": self.step,
            "pool": self.pool.to_dict(),
            "ledger": self.ledger.to_dict(),
            "written": self.written.to_dict(),
            "settled": self.settled,
            "seconds": self.clock.seconds,
            **({"rescue": self.rescue.to_dict()} if self.rescue else {}),
            "course": self.course.to_data(),
        }
        files.write_json(folder / STATE, data, indent=None)
        if self.memory:
            files.write_packed(folder / MEMORY, self.memory.to_data())
        if self.recipe.sampling.ahead:
            files.write_packed(folder / AHEAD, self.in_play.to_data())
        if self.recipe.slow.feedback == "rank":
            files.write_packed(folder / WORDS, {"standing": self.standing.to_data(), "trust": self.trust.to_data()})

    def restore(self, folder: Path, stream: Stream) -> None:
        """Read what `save` wrote; the stream supplies the problems of saved rollouts, all of the last step's cycle."""
        data = files.read_json(folder / STATE)
        assert data is not None, "the checkpoint's manifest was checked"
        self.step, self.pool = data["step"], Pool.from_dict(data["pool"])
        self.ledger = Ledger.from_dict(data["ledger"])
        # Earlier versions saved settled steps only.
        self.written = Ledger.from_dict(data.get("written", data["ledger"]))
        self.settled = data.get("settled", True)
        self.rescue = self.rescue and Accounts.from_dict(data["rescue"])
        self.clock.add(data.get("seconds", 0.0))
        self.course.restore(data.get("course"))
        length = self.recipe.fast.cycle * self.recipe.slow.problems
        ahead = stream.take(self.last_cycle * length, length)
        if self.memory:
            self.memory.restore(files.read_packed(folder / MEMORY), ahead)
        self.in_play.restore(files.read_packed(folder / AHEAD), stream)
        if words := files.read_packed(folder / WORDS):
            self.standing, self.trust = Standing(**words["standing"]), Trust.from_data(words["trust"])
