"""Start or resume a run."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from fastslow.assembly import Parts, assemble, find_world
from fastslow.engine.base import Engine
from fastslow.engine.local import out_of_memory
from fastslow.errors import Interrupted, RecipeError
from fastslow.fast.optimizers import find_optimizer
from fastslow.fast.reflection import Reflector, build_reflector
from fastslow.fast.reflection.policy_chat import PolicyChat
from fastslow.loop import Loop
from fastslow.models.load import choose_device, load_to_ask
from fastslow.recipe import MACHINE_SETTINGS, Recipe, flat, read_stored_recipe
from fastslow.records import Sampling
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import View, make_view
from fastslow.tasks import Task
from fastslow.world import World


def train(recipe: Recipe, folder: str | Path, view: View | None = None, *, task: Task | None = None) -> Path:
    """Run a recipe and return the run folder; `task`, a task made in Python, needs `task: given` in the recipe."""
    folder, world = Path(folder), find_world(recipe)
    world.from_main(RunFolder(folder).refuse_existing)
    with out_of_memory.explained(recipe, folder):
        # Before the folder is created, so that a mistake found here leaves no folder behind.
        parts = _assemble(recipe, folder, world, task)
        run = _on_main(world, lambda: RunFolder.create(folder, recipe))
        _run_loop(recipe, parts, folder, run, None, view)
    return folder


def resume(
    folder: str | Path, view: View | None = None, *, task: Task | None = None, overrides: Sequence[str] = ()
) -> Path:
    """Resume an interrupted run from its newest intact checkpoint, with the same result as an uninterrupted run.

    `overrides` may change the settings that only fit the run to a machine (MACHINE_SETTINGS).
    """
    folder = Path(folder)
    recipe = _recipe_to_resume(folder, overrides)
    world = find_world(recipe)
    run = _on_main(world, lambda: RunFolder.open(folder, lock=True))
    with out_of_memory.explained(recipe, folder):
        parts = _assemble(recipe, folder, world, task)
        latest = world.from_main(lambda: _rewound(run, recipe))
        _run_loop(recipe, parts, folder, run, latest, view)
    return folder


def _recipe_to_resume(folder: Path, overrides: Sequence[str]) -> Recipe:
    stored, changed = RunFolder.open(folder).recipe, read_stored_recipe(folder / "recipe.yaml", overrides, exact=True)
    before, after = flat(stored.model_dump()), flat(changed.model_dump())
    refused = [key for key in {**before, **after} if before.get(key) != after.get(key) and key not in MACHINE_SETTINGS]
    if refused:
        raise RecipeError(
            f"{refused[0]} cannot be changed on resume; only {', '.join(MACHINE_SETTINGS)} can; start a new run instead"
        )
    return changed


def _assemble(recipe: Recipe, folder: Path, world: World, task: Task | None) -> Parts:
    if recipe.method != "rl":
        find_optimizer(recipe.fast.optimizer)  # reports a missing package before the model is loaded
    return assemble(recipe, folder, world, task)


def _on_main(world: World, make: Callable[[], RunFolder]) -> RunFolder | None:
    """The run folder on the main process, None on the others."""
    made: list[RunFolder] = []
    world.from_main(lambda: made.append(make()))
    return made[0] if made else None


def _run_loop(
    recipe: Recipe,
    parts: Parts,
    folder: Path,
    run: RunFolder | None,
    latest: tuple[int, Path] | None,
    view: View | None,
) -> None:
    engine = parts.engine
    if view is None:
        view = make_view() if engine.world.main else make_view(Console(quiet=True))
        view.message(f"see it learn: fastslow board {shlex.quote(str(folder))}")
    with _closing(run, folder, view, engine):
        reflector = _reflector(recipe, parts) if recipe.method != "rl" else None
        loop = Loop(recipe, parts.player, parts.seed_texts, reflector, folder, run, view)
        state, started = loop.state, time.perf_counter()
        loop.run(latest[1] if latest else None)
        if run:
            evaluations = run.rows("evals")
            results = evaluations[-1]["results"] if evaluations else {}
            spent = state.ledger.total()
            run.set_status("finished", steps=state.step)
            view.finish(
                {
                    "run": str(folder),
                    "steps": state.step,
                    **{f"validation ({label})": f"{result['mean']:.3f}" for label, result in results.items()},
                    "rollouts": state.ledger.training_rollouts,
                    "tokens": spent.prompt_tokens + spent.completion_tokens,
                    "seconds": round(time.perf_counter() - started),
                }
            )


def _reflector(recipe: Recipe, parts: Parts) -> Reflector:
    """The reflector that proposes edits of contexts."""
    reflection = recipe.fast.reflection
    chat = None
    if reflection.kind == "policy":
        sampling = Sampling(max(reflection.temperature, 1e-3), 1.0, reflection.max_tokens)
        chat = PolicyChat(parts.engine, parts.player.chat, sampling)
    device = choose_device(recipe.model.device)
    return build_reflector(reflection, chat, lambda name: load_to_ask(name, device))


def _rewound(run: RunFolder | None, recipe: Recipe) -> tuple[int, Path] | None:
    """The checkpoint to resume from; everything after it is removed from the run folder."""
    assert run is not None, "called on the main process only"
    latest = run.checkpoints.latest()
    if recipe != run.recipe:
        run.write_recipe(recipe)
    run.rewind(latest[0] if latest else -1)
    run.set_status("running")
    return latest


@contextmanager
def _closing(run: RunFolder | None, folder: Path, view: View, engine: Engine) -> Iterator[None]:
    """Record how the run ended and release trackers, lock and screen, whether it finished, failed or was interrupted."""
    try:
        yield
    except BaseException as error:
        view.close()
        if run:
            interrupted = isinstance(error, KeyboardInterrupt)
            run.set_status("interrupted" if interrupted else "failed", error=f"{type(error).__name__}: {error}")
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"interrupted; resume with `fastslow train --resume {folder}`") from None
        raise
    finally:
        view.close()
        engine.close()
        if run:
            run.close()
