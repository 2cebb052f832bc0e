"""Tasks by name: the built-in ones, those of installed packages with entry points in the group `fastslow.tasks`, and Python
objects (`task: my_module:my_task`). A family with variants is named `FAMILY/NAME`."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import ValidationError

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.registry import Registry, did_you_mean, load_named
from fastslow.base.text import one_line
from fastslow.recipe import GIVEN, Recipe, StageRecipe, TaskByName, TaskRecipe
from fastslow.tasks.base import Options, Task
from fastslow.tasks.stages import Mixture, Part, Stage, Stages

TASKS = Registry(
    "task",
    "fastslow.tasks",
    {
        "star-graph": "fastslow.tasks.families.star_graph:StarGraph",
        "dataset": "fastslow.tasks.adapters.dataset:DatasetTask",
        "trl": "fastslow.tasks.adapters.trl_rewards:TRLRecipeTask",
        "rulebook": "fastslow.tasks.families.rulebook.task:Rulebook",
        "handbook": "fastslow.tasks.families.handbook:HandbookTask",
        "formats": "fastslow.tasks.families.formats.task:Formats",
        "manual": "fastslow.tasks.families.manual.task:Manual",
        "codeio": "fastslow.tasks.families.codeio:CodeIO",
        "code": "fastslow.tasks.families.code:Code",
        "math": "fastslow.tasks.families.mathematics:Mathematics",
        "hover": "fastslow.tasks.families.hover:Hover",
        "physics": "fastslow.tasks.families.physics:Physics",
        "reasoning-gym": "fastslow.tasks.families.reasoning_gym:ReasoningGym",
        "discover": "fastslow.discover.task:Discover",
        "agent": "fastslow.tasks.adapters.agent:AgentTask",
        "harness": "fastslow.tasks.adapters.harness:HarnessRows",
        "harbor": "fastslow.tasks.adapters.harbor.task:HarborTask",
        "openenv": "fastslow.tasks.adapters.openenv:OpenEnvTask",
        "trl-environment": "fastslow.tasks.adapters.trl_environment:TRLEnvironmentRecipeTask",
        "trl-script": "fastslow.tasks.adapters.trl_script:TRLScriptTask",
        "verifiers": "fastslow.tasks.adapters.verifiers_env.task:Verifiers",
    },
    TaskError,
)


class NotGiven(TaskError):
    """The task of a recipe was given as an object, which nothing here can make."""


def task_classes() -> dict[str, type[Task]]:
    """Every task that can be used, by name. One that cannot be loaded is left out; asking for it by name says why."""
    classes = {}
    for name in TASKS.names():
        try:
            classes[name] = task_class(name)
        except TaskError:
            continue
    return classes


def task_class(name: str) -> type[Task]:
    """The task of that name, or of that family."""
    name = name.partition("/")[0]
    if name == GIVEN and name not in TASKS.names():
        raise NotGiven(
            "the task of this recipe was given as an object; give it again from Python: fastslow.train(…, task=…), or with "
            "the folder of a run fastslow.resume(RUN, task=…)"
        )
    loaded = TASKS.find(name)
    if not (isinstance(loaded, type) and issubclass(loaded, Task)) or inspect.isabstract(loaded):
        raise TaskError(
            f"{TASKS.described(name)} is {one_line(loaded)}; "
            "expected a subclass of fastslow.tasks.Task with nothing left abstract"
        )
    return loaded


def build_task(recipe: Recipe) -> Task:
    """The task a recipe asks for, or the mixture or the stages of its tasks, with data read and options checked."""
    if recipe.stages:
        built: list[tuple[StageRecipe, Task]] = []
        for stage in recipe.stages:  # those of the same task with the same options share it
            known = (task for other, task in built if (other.name, other.options) == (stage.name, stage.options))
            built.append((stage, next(known, None) or _build(stage)))
        return Stages([Stage(stage.name, stage.steps, task) for stage, task in built])
    parts = [Part(part.name, part.weight, _build(part)) for part in recipe.tasks if isinstance(part, TaskRecipe)]
    return parts[0].task if len(parts) == 1 else Mixture(parts)


def check_options(recipe: Recipe) -> None:
    """Refuse unknown tasks and wrong options without reading any data."""
    for part in recipe.tasks:
        if ":" not in part.name:
            _options(part)


def _load_object(recipe: TaskByName) -> Task:
    """A task made in Python: the object itself, or a function that returns it and takes the options."""
    loaded = load_named("task", recipe.name)
    if not isinstance(loaded, Task) and callable(loaded):
        try:
            loaded = loaded(**recipe.options)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's code can fail in any way, and `sys.exit` must not look like success
            raise TaskError(f"task '{recipe.name}' raised {type(error).__name__}: {one_line(error)}") from error
    elif recipe.options:
        raise RecipeError(f"task '{recipe.name}' is an object and takes no options, but {[*recipe.options]} are given")
    if not isinstance(loaded, Task):
        raise TaskError(
            f"task '{recipe.name}' is {one_line(loaded)}; expected a fastslow.Task or a function that returns one"
        )
    return loaded


def _options(recipe: TaskByName) -> Options:
    chosen = task_class(recipe.name)
    family, slash, name = recipe.name.partition("/")
    options = recipe.options
    if slash and chosen.named is None:
        raise RecipeError(f"task '{family}' has no variants, but '{recipe.name}' asks for one; say task: {family}")
    if slash and chosen.named is not None:
        options = {chosen.named: name, **options}
    try:
        return chosen.Options.model_validate(options)
    except ValidationError as error:
        raise RecipeError("\n".join(_explain(recipe.name, chosen, problem) for problem in error.errors())) from None


def _build(recipe: TaskByName) -> Task:
    task = _load_object(recipe) if ":" in recipe.name else task_class(recipe.name)(_options(recipe))
    if not len(task.examples("train")):
        raise TaskError(f"task '{recipe.name}' has no training problems; expected at least one, check its options")
    return task


def _explain(name: str, chosen: type[Task], problem: Any) -> str:
    option = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = list(chosen.Options.model_fields)
        hint = did_you_mean(option, known)
        return f"task '{name}' has no option '{option}'; {hint}its options are: {', '.join(known) or 'none'}"
    if problem["type"] == "missing":
        return f"task '{name}' needs the option '{option}'; add it beside the task's name ({option}: …)"
    message = one_line(problem["msg"].removeprefix("Value error, "))
    if not option:
        return f"task '{name}': {message}"
    return f"task '{name}': {option}={problem['input']!r}: {message[0].lower()}{message[1:]}"
