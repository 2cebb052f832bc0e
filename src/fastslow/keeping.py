"""A run's state in a checkpoint: what the loop has beside the trainer's part, written and read back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from fastslow.errors import RunError
from fastslow.fast.pool import Pool
from fastslow.runs import files
from fastslow.runs.ledger import Ledger

if TYPE_CHECKING:
    from fastslow.loop import Loop

MEMORY = "memory.json.gz"


def save_checkpoint(loop: Loop, last: bool) -> None:
    """Save everything; a failure to save costs this checkpoint, not the run, unless it is the last."""
    if loop.run:
        loop.run.write_json("ledger.json", loop.ledger.to_dict())
    try:
        if loop.world.main:
            loop.checkpoints.begin(loop.step)
        loop.world.gather(None)  # wait for the folder
        problem = _fill(loop, loop.checkpoints.aside(loop.step))
        if problems := [text for text in loop.world.gather(problem) if text]:
            loop.checkpoints.abandon(loop.step)
            raise RunError(f"checkpoint of step {loop.step} was not saved: {problems[0]}; free space and resume")
        if loop.world.main:
            loop.trainer.flatten(loop.checkpoints.aside(loop.step))
            loop.checkpoints.commit(loop.step)
            loop.checkpoints.prune(loop.recipe.output.keep_checkpoints)
            if loop.run:  # cycles before the oldest checkpoint are never gone through again
                loop.run.forget_memory(loop.checkpoints.steps()[0] // loop.recipe.fast.cycle)
    except RunError as error:
        if last:
            raise
        loop.view.message(f"{error}; training goes on, the next checkpoint is due in time", "warning")


def _fill(loop: Loop, folder: Path) -> str | None:
    """Write this process's part; what went wrong comes back as words, so that all processes hear of it."""
    try:
        if loop.learns:
            loop.trainer.save(folder)
        if loop.world.main:
            state = {
                "step": loop.step,
                "pool": loop.pool.to_dict(),
                "ledger": loop.ledger.to_dict(),
                "seconds": time.perf_counter() - loop.began,
            }
            files.write_json(folder / "state.json", state)
            if loop.trainer.teacher and loop.step % loop.recipe.fast.cycle:  # else the next cycle makes a new one
                loop.trainer.teacher.save(folder)
            if (left := loop.memory.to_data()) is not None:
                files.write_packed(folder / MEMORY, left)
    except Exception as error:  # a full disk shows as OSError, RuntimeError or safetensors' own
        return files.cause(error)
    return None


def restore_checkpoint(loop: Loop, checkpoint: Path) -> None:
    """Put a loop back to where it was when the checkpoint was made; the trainer's part it reads itself."""
    state = files.read_json(checkpoint / "state.json")
    assert state is not None, "the checkpoint's manifest was checked"
    loop.step, loop.pool = state["step"], Pool.from_dict(state["pool"])
    loop.ledger = Ledger.from_dict(state["ledger"])
    loop.written = loop.ledger.snapshot()
    loop.began -= state.get("seconds", 0.0)
    if loop.trainer.teacher:
        loop.trainer.teacher.load(checkpoint)
    # Of the cycle that the last step was made in.
    problems, length = loop.recipe.slow.problems, loop.recipe.fast.cycle
    ahead = loop.stream.take((loop.step - 1) // length * length * problems, length * problems)
    loop.memory.restore(files.read_packed(checkpoint / MEMORY), ahead)
