"""Start or resume a run, and end it: whatever ends it, run.json says so, and terminal, lock and signal handlers are released.

Before step 1 one real answer of every task is graded, and the reflection model and every teacher are called once. A grader
with a wrong column or a model with a wrong key fails on every call, and is found here, before a run folder exists. A grader
that fails on some answers only passes, and is counted during the run.
"""

from __future__ import annotations

import shlex
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from rich.console import Console

from fastslow.base.errors import FastSlowError, Interrupted, ModelError, NothingLearnt, RecipeError, RunError, cause
from fastslow.base.text import one_line, redacted
from fastslow.base.world import Stopped, World, derive_seed
from fastslow.engine.local import out_of_memory
from fastslow.fast.reflection import Chat, LanguageModelReflector, ReflectionFailed, Reflector, Usage
from fastslow.launch import finishing
from fastslow.launch.assembly import Parts, assemble, find_world
from fastslow.launch.harness import note_code
from fastslow.launch.identity import differing, identity
from fastslow.launch.schedule import count_rollouts, unspent
from fastslow.loop import Loop
from fastslow.recipe import (
    GRADING_SETTINGS,
    LENGTH_SETTINGS,
    MACHINE_SETTINGS,
    Recipe,
    flat,
    read_stored_recipe,
    resuming,
)
from fastslow.recipe.parts import OPTIMIZER, REFLECTOR
from fastslow.records import Context, Example
from fastslow.rollouts.play import GradingError, first_error, is_faulty
from fastslow.runs.checkpoint import check_witness
from fastslow.runs.files import nothing_left_behind
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Ledger
from fastslow.runs.trust import remember, require_trust
from fastslow.runs.view import View, make_view
from fastslow.tasks import Task
from fastslow.tasks.registry import NotGiven
from fastslow.tasks.stages import Mixture

MORE = 7
"""Answers that are graded after a faulty grade; the run stops if they are all faulty."""


def train(recipe: Recipe, folder: str | Path, view: View | None = None, *, task: Task | None = None) -> Path:
    """Run a recipe and return the run folder; `task`, a task made in Python, needs `task: given` in the recipe."""
    given, world = Path(folder), find_world(recipe)
    place = given.absolute()  # code of the task may change the current folder
    world.from_main(RunFolder(given).refuse_existing)
    with out_of_memory.explained(recipe, given), ExitStack() as open_engine:
        # Before the run folder is made, so that a mistake found here leaves none behind.
        with nothing_left_behind(place), ExitStack() as starting:
            parts = _assemble(recipe, place, world, task)
            starting.enter_context(closing(parts.engine))
            data = world.from_main(lambda: identity(parts.task))
            reflector, teachers = _reflector(recipe, parts), build_teachers(recipe)
            spent = preflight(recipe, parts, reflector, teachers)
            open_engine.push(starting.pop_all())
        run = on_main(world, lambda: RunFolder.create(place, recipe, data))
        remember(place, recipe)
        _run_loop(recipe, parts, reflector, (given, place), run, view, spent=spent, teachers=teachers)
    return given


def resume(
    folder: str | Path,
    view: View | None = None,
    *,
    task: Task | None = None,
    overrides: Sequence[str] = (),
    step: int | None = None,
    trust: bool = False,
    other_data: bool = False,
) -> Path:
    """Resume a run as `fastslow.resume` does, which describes the arguments, and return the run folder."""
    given, place = Path(folder), Path(folder).absolute()
    recipe = _recipe_to_resume(given, overrides)
    recipe = require_trust(place, recipe, trust)
    world = find_world(recipe)
    run = on_main(world, lambda: RunFolder.open(place, lock=True))
    with run or nullcontext(), out_of_memory.explained(recipe, given):
        try:
            parts = _assemble(recipe, place, world, task)
        except NotGiven:
            again = resuming(recipe, given)
            raise RunError(f"the task of this run was given as an object; give it again: {again}") from None
        with closing(parts.engine):
            reflector, teachers = _reflector(recipe, parts), build_teachers(recipe)
            data, changed = world.from_main(lambda: _same_data(run, parts.task, other_data))
            checkpoint, said = world.from_main(lambda: _rewound(run, recipe, step, data))
            # A run without a checkpoint starts again, and does before step 1 what it did before.
            spent = preflight(recipe, parts, reflector, teachers) if checkpoint is None else None
            resumed = (checkpoint, said + changed)
            folders = (given, place)
            _run_loop(recipe, parts, reflector, folders, run, view, spent=spent, resumed=resumed, teachers=teachers)
    return given


def _recipe_to_resume(folder: Path, overrides: Sequence[str]) -> Recipe:
    stored, changed = RunFolder.open(folder).recipe, read_stored_recipe(folder / "recipe.yaml", overrides, exact=True)
    before, after = flat(stored.model_dump()), flat(changed.model_dump())
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    for key in differing:
        if key in LENGTH_SETTINGS:
            _require_longer(key, before.get(key), after.get(key))
        elif key not in (*MACHINE_SETTINGS, *GRADING_SETTINGS):
            raise RecipeError(
                f"{key} cannot be changed on resume; only {', '.join((*MACHINE_SETTINGS, *GRADING_SETTINGS))} can, and "
                f"{' and '.join(LENGTH_SETTINGS)} can be raised; start a new run instead"
            )
    return changed


def _require_longer(key: str, before: int | None, after: int | None) -> None:
    """Raise if a run would end earlier; None is no limit."""
    if after is not None and (before is None or after < before):
        raise RecipeError(
            f"{key}={after} would end the run earlier than {key}={'null' if before is None else before}, which it has; a run "
            f"can be extended, not shortened: give a larger number"
        )


def _assemble(recipe: Recipe, folder: Path, world: World, task: Task | None) -> Parts:
    if recipe.method != "rl":
        OPTIMIZER.registry.find(recipe.fast.optimizer.name)  # reports a missing package before the model is loaded
    try:
        return assemble(recipe, folder, world, task)
    except (FastSlowError, MemoryError):
        raise
    except Exception as error:  # libraries check settings and packages in ways of their own
        if out_of_memory.of_gpu(error):
            raise
        raise RecipeError(f"the run cannot be set up with this recipe: {one_line(cause(error))}") from error


def on_main(world: World, make: Callable[[], RunFolder]) -> RunFolder | None:
    """The run folder on the main process, None on the others."""
    made: list[RunFolder] = []
    world.from_main(lambda: made.append(make()))
    return made[0] if made else None


def _run_loop(
    recipe: Recipe,
    parts: Parts,
    reflector: Reflector | None,
    folders: tuple[Path, Path],
    run: RunFolder | None,
    view: View | None,
    *,
    spent: Ledger | None,
    resumed: tuple[Path | None, str] = (None, ""),
    teachers: Mapping[str, Chat] | None = None,
) -> None:
    """Run the loop in a folder, given as the user named it and as an absolute path; `resumed` is the checkpoint to start from
    and what to say of it."""
    folder, place = folders
    if view is None:
        view = make_view() if parts.engine.world.main else make_view(Console(quiet=True))
        view.message(f"see it learn: fastslow board {shlex.quote(str(folder))}")
    with ending(run, folder, view, parts.engine.world, recipe):
        loop = Loop(recipe, parts.player, parts.seed_texts, reflector, place, run, view, teachers)
        note_code(run, parts.task)
        state, started = loop.state, time.perf_counter()
        if resumed[1]:
            view.message(resumed[1])
        if recipe.rollouts is not None and (said := unspent(recipe, count_rollouts(recipe, parts.task))):
            view.message(said, level="warning")
        loop.run(resumed[0], spent)
        if run:
            run.set_status("finished", steps=state.step)
            view.finish(finishing.numbers(run, folder, state, time.perf_counter() - started))
            for note in finishing.notes(run, recipe, state):
                view.message(note)


def _reflector(recipe: Recipe, parts: Parts) -> Reflector | None:
    """The reflector that proposes edits of contexts; none without a fast loop."""
    if recipe.method == "rl":
        return None
    kind = REFLECTOR.registry.find(recipe.fast.reflection.kind)
    reflector: Reflector = kind.build(recipe, parts.engine, parts.player.chat)
    return reflector


def build_teachers(recipe: Recipe) -> dict[str, Chat]:
    """The models that `slow.rescue` asks, by name, in order. What is longer than a completion may be would be truncated; a
    teacher's tokens may be shorter than the policy's."""
    found: dict[str, Chat] = {}
    for part in recipe.slow.rescue.options.get("models", ()) if recipe.method != "gepa" else ():
        name = str(part.options.get("model", part.name))
        longest = min(part.options.get("max_tokens", 0), 2 * recipe.sampling.max_tokens)
        asked = part.model_copy(update={"max_tokens": longest} if longest else {})
        same = sum(other.partition(" #")[0] == name for other in found)
        kind = REFLECTOR.registry.find(part.name)
        found[f"{name} #{same + 1}" if same else name] = kind.chat(asked, recipe.model.device)
    return found


def _rewound(
    run: RunFolder | None, recipe: Recipe, step: int | None, data: Mapping[str, str]
) -> tuple[Path | None, str]:
    """The checkpoint to resume from, and what is repeated; everything after it is removed from the run folder."""
    assert run is not None, "called on the main process only"
    chosen = (step, run.checkpoints.get(step)) if step else None  # step 0 has no checkpoint
    latest = run.latest_checkpoint() if step is None else chosen
    if latest is not None:
        check_witness(run.path, latest[1])
    if recipe != run.recipe:
        run.write_recipe(recipe)
    repeated = run.rewind(latest[0] if latest else -1)
    number, path = latest or (0, None)
    best = run.info.get("best")
    there = best in run.checkpoints.steps()  # it may have been removed just now
    run.set_status("running", checkpoint=number, best=best if there else number or None, data=data)
    done = f"{repeated} completed {'step is' if repeated == 1 else 'steps are'} repeated" if repeated else ""
    place = f"resuming after step {number}" if latest else "starting over, without a checkpoint"
    return path, f"{place}; {done or 'no completed step is repeated'}"


def _same_data(run: RunFolder | None, task: Task, other_data: bool) -> tuple[dict[str, str], str]:
    """The identity of problems and grader. Raise if the run was started with others; what to say of it if it may go on."""
    assert run is not None, "called on the main process only"
    before, now = run.info.get("data"), identity(task)
    changed = differing(before, now) if isinstance(before, dict) else ""
    if changed and not other_data:
        raise RunError(
            f"'{run.path}' was trained with other data: {changed}; restore them, start a new run, or insist with "
            "--other-data (from Python: other_data=True)"
        )
    if before is None:
        return (
            now,
            "; whether problems and grader are still the same cannot be checked, since the run did not note them",
        )
    return now, f"; {changed} from here on, as you insist" if changed else ""


# Before step 1 ---------------------------------------------------------------------------------------------------------


def preflight(
    recipe: Recipe, parts: Parts, reflector: Reflector | None, teachers: Mapping[str, Chat] | None = None
) -> Ledger:
    """Raise if grading, reflection or a teacher fails on every call; returns what the calls cost."""
    spent = Ledger()
    for number, problems in enumerate(_problems_of_each(parts.task)):
        _grade(recipe, parts, problems, number, spent)
    # `lessons` asks no model, and `policy` the one that has just answered.
    kind = REFLECTOR.registry.find(recipe.fast.reflection.kind)
    asked = [LanguageModelReflector(chat) for chat in (teachers or {}).values()]
    if recipe.fast.budget and kind.own_model and isinstance(reflector, LanguageModelReflector):
        asked.append(reflector)
    for each in asked:
        parts.engine.world.from_main(partial(_call, each))
        usage, each.usage = each.usage, Usage()
        spent.book("preflight", usage.spent)
    return spent


def _problems_of_each(task: Task) -> Iterator[list[Example]]:
    """The first training problems of every task of a run."""
    examples = task.examples("train")
    if not isinstance(task, Mixture):
        yield list(examples[: 1 + MORE])
        return
    found: dict[str, list[Example]] = {part.name: [] for part in task.parts}
    for example in examples:
        mine = found[example.part]  # type: ignore[attr-defined]
        if len(mine) <= MORE:
            mine.append(example)
        if all(len(each) > MORE for each in found.values()):
            break
    yield from (each for each in found.values() if each)


def _grade(recipe: Recipe, parts: Parts, problems: list[Example], number: int, spent: Ledger) -> None:
    faulty = []
    for batch in filter(None, (problems[:1], problems[1:])):
        rollouts, timing = parts.player.play(
            [(example, Context(dict(parts.seed_texts))) for example in batch],
            recipe.sampling.training(),
            policy_step=0,
            seed=derive_seed(recipe.seed, "preflight", number, len(batch)),
            strict=False,
        )
        spent.book_rollouts("preflight", rollouts, timing.total, prices=recipe.prices)
        faulty += [rollout for rollout in rollouts if is_faulty(rollout)]
        if not faulty:
            return
    if len(faulty) == len(problems):
        raise GradingError(
            f"grading failed on all of the {len(faulty)} answers that were tried before step 1; {first_error(faulty)}"
        )


def _call(reflector: LanguageModelReflector) -> None:
    """One short question; only a failure that every other request would share counts."""
    try:
        reflector.ask([{"role": "user", "content": "Answer with the one word: ready"}], seed=0)
    except ReflectionFailed as failure:
        if failure.permanent:
            raise ModelError(str(failure)) from None


# The end ---------------------------------------------------------------------------------------------------------------


@contextmanager
def ending(run: RunFolder | None, folder: Path, view: View, world: World, recipe: Recipe) -> Iterator[None]:
    """Record how the run ended, whether it finished, failed, was interrupted, or its task's code called `sys.exit`."""
    try:
        with world.stops.listening(together=world.size > 1):
            yield
    except BaseException as error:
        if isinstance(error, MemoryError):
            traceback.clear_frames(error.__traceback__)  # what they hold is needed to record the end
        view.close()
        _record(run, error)
        if isinstance(error, KeyboardInterrupt):
            by = f"stopped by {error}" if isinstance(error, Stopped) else "interrupted"
            saved = f" after step {steps[-1]}, which is saved" if run and (steps := run.checkpoints.steps()) else ""
            raise Interrupted(f"{by}{saved}; resume with `{resuming(recipe, folder)}`") from None
        if isinstance(error, SystemExit):
            raise RunError(
                f"code of the task called sys.exit({error.code!r}); raise an exception there instead, then resume with "
                f"`{resuming(recipe, folder)}`"
            ) from error
        raise
    finally:
        view.close()
        if run:
            run.close()


def _record(run: RunFolder | None, error: BaseException) -> None:
    if run is None:
        return
    stopped = "stopped" if isinstance(error, NothingLearnt) else "failed"
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else stopped
    try:
        run.set_status(status, error=redacted(cause(error)))
    except (RunError, MemoryError) as problem:  # the disk is full, say: what ended the run matters more
        error.add_note(str(problem))
