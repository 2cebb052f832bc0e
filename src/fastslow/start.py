"""Starting a run and going on with one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from fastslow.assembly import Parts, assemble, find_world
from fastslow.engine.local import out_of_memory
from fastslow.errors import Interrupted, RecipeError
from fastslow.loop import Loop
from fastslow.recipe import MACHINE_SETTINGS, Recipe, flat, read_stored_recipe
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import View, make_view
from fastslow.tasks import Task
from fastslow.world import World


def train(recipe: Recipe, folder: str | Path, view: View | None = None, *, task: Task | None = None) -> Path:
    """Run a recipe from the start and return the run folder; a `task` made in Python goes with the recipe's `task: given`."""
    folder, world = Path(folder), find_world(recipe)
    world.from_main(RunFolder(folder).refuse_existing)
    with out_of_memory.explained(recipe, folder):
        # Before the folder is made: a mistake found here leaves none behind.
        parts = assemble(recipe, folder, world, task=task)
        run = _on_main(world, lambda: RunFolder.create(folder, recipe))
        _go(parts, folder, run, None, view)
    return folder


def resume(
    folder: str | Path, view: View | None = None, *, task: Task | None = None, overrides: Sequence[str] = ()
) -> Path:
    """Go on with an interrupted run from its newest whole checkpoint, to the end it would have had; settings that only fit
    it to the machine may be others from here on."""
    folder = Path(folder)
    recipe = _refitted(folder, overrides)
    world = find_world(recipe)
    run = _on_main(world, lambda: RunFolder.open(folder, lock=True))
    with out_of_memory.explained(recipe, folder):
        parts = assemble(recipe, folder, world, task=task)
        latest = world.from_main(lambda: _rewound(run, recipe))
        _go(parts, folder, run, latest, view)
    return folder


def _refitted(folder: Path, overrides: Sequence[str]) -> Recipe:
    there, here = RunFolder.open(folder).recipe, read_stored_recipe(folder / "recipe.yaml", overrides, exact=True)
    before, after = flat(there.model_dump()), flat(here.model_dump())
    other = [key for key in {**before, **after} if before.get(key) != after.get(key) and key not in MACHINE_SETTINGS]
    if other:
        raise RecipeError(
            f"{other[0]} cannot change in the middle of a run, of these only {', '.join(MACHINE_SETTINGS)}; "
            "start a new run for it"
        )
    return here


def _on_main(world: World, make: Callable[[], RunFolder]) -> RunFolder | None:
    """The run folder, held by the main process alone."""
    held: list[RunFolder] = []
    world.from_main(lambda: held.append(make()))
    return held[0] if held else None


def _go(parts: Parts, folder: Path, run: RunFolder | None, latest: tuple[int, Path] | None, view: View | None) -> None:
    if view is None:
        view = make_view() if parts.world.main else make_view(Console(quiet=True))
    with _kept(run, folder, view):
        loop = Loop(parts, folder, run, view)
        started = time.perf_counter()
        loop.train(latest[1] if latest else None)
        if run:
            evaluations = run.rows("evals")
            results = evaluations[-1]["results"] if evaluations else {}
            spent = loop.ledger.total()
            run.set_status("finished", steps=loop.step)
            view.finish(
                {
                    "run": str(folder),
                    "steps": loop.step,
                    **{f"validation ({label})": f"{result['mean']:.3f}" for label, result in results.items()},
                    "rollouts": loop.ledger.training_rollouts,
                    "tokens": spent.prompt_tokens + spent.completion_tokens,
                    "seconds": round(time.perf_counter() - started),
                }
            )


def _rewound(run: RunFolder | None, recipe: Recipe) -> tuple[int, Path] | None:
    """The checkpoint to go on from, with everything after it forgotten."""
    assert run is not None, "asked of the main process only"
    latest = run.checkpoints.latest()
    if recipe != run.recipe:
        run.write_recipe(recipe)
    run.rewind(latest[0] if latest else -1)
    run.set_status("running")
    return latest


@contextmanager
def _kept(run: RunFolder | None, folder: Path, view: View) -> Iterator[None]:
    """However a run ends, its folder says how, and the lock and the screen are given back."""
    try:
        yield
    except BaseException as error:
        view.close()
        if run:
            interrupted = isinstance(error, KeyboardInterrupt)
            run.set_status("interrupted" if interrupted else "failed", error=f"{type(error).__name__}: {error}")
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"interrupted; `fastslow train --resume {folder}` goes on") from None
        raise
    finally:
        view.close()
        if run:
            run.close()
