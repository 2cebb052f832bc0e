"""Saves a completed step as a checkpoint, and removes those that need not stay. Every process takes part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastslow.base.errors import RunError, cause
from fastslow.engine.base import Engine
from fastslow.recipe import Recipe
from fastslow.runs.checkpoint import Checkpoints, write_witness
from fastslow.runs.folder import RunFolder

if TYPE_CHECKING:
    from fastslow.state import State


class Saver:
    """The checkpoints of a run in training; `run` is there on the main process only."""

    def __init__(self, recipe: Recipe, engine: Engine, folder: Path, run: RunFolder | None) -> None:
        self.recipe, self.engine, self.folder, self.run = recipe, engine, folder, run
        self.checkpoints = Checkpoints(folder / "checkpoints")

    def save(self, held: State, scheduled: bool) -> None:
        """Save a completed step."""
        step, world = held.step, self.engine.world
        if self.run:
            self.run.write_json("ledger.json", held.ledger.to_dict())
        if world.main:
            self.checkpoints.begin(step)
        world.gather(None)  # wait for the folder
        problem = self._fill(held, self.checkpoints.temporary(step))
        if problems := [text for text in world.gather(problem) if text]:
            self.checkpoints.abandon(step)
            raise RunError(f"checkpoint of step {step} was not saved: {problems[0]}; free space and resume")
        if world.main:
            self.checkpoints.commit(step, scheduled)
            if self.run:
                self.tidy(held)

    def tidy(self, held: State) -> None:
        """Note the newest checkpoint and the best. Of those that are not scheduled, only the best two and the last stay."""
        assert self.run is not None, "called on the main process only"
        best = held.course.chosen(held.step)
        saved = best in self.checkpoints.steps()  # the disk may have been full
        self.run.set_status("running", checkpoint=held.step, best=best if saved else held.step)
        self.checkpoints.prune(self.recipe.output.keep_checkpoints, {*held.course.peaks, held.step})
        # A resumed run never needs the cycles before its oldest checkpoint.
        self.run.forget_memory(self.checkpoints.steps()[0] // self.recipe.fast.cycle)

    def _fill(self, held: State, folder: Path) -> str | None:
        """Write this process's part; return an error as text, so that it can be sent to all processes."""
        try:
            if self.recipe.method != "gepa":
                # The teacher is not needed at the end of a cycle: the next cycle freezes a new one.
                self.engine.save(folder, teacher=not held.cycle_due)
            if self.engine.world.main:
                held.save(folder)
                write_witness(self.folder, folder)
        except Exception as error:
            return cause(error)
        return None
