"""Build the task, the engine and the player from a recipe.

torch and transformers are imported when they are needed: a mistake that can be seen without them must not wait for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.world import World
from fastslow.engine.base import Engine
from fastslow.models.tokenizer import resolve
from fastslow.recipe import Recipe, VllmServers
from fastslow.rollouts.chat import ChatFormat
from fastslow.rollouts.play import Player
from fastslow.runs.trackers import check_trackers
from fastslow.tasks import Task
from fastslow.tasks.contamination import refuse_contamination
from fastslow.tasks.registry import build_task
from fastslow.tasks.scripted import scripted_rollout

CHECKED_EXAMPLES = 64
LAUNCHED = ("LOCAL_RANK", "WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
"""Variables by which accelerate knows that a launcher has started this process."""


@dataclass(frozen=True)
class Parts:
    """The loaded parts of a run."""

    task: Task
    engine: Engine
    player: Player
    seed_texts: Mapping[str, str]


def find_world(recipe: Recipe) -> World:
    """Rank and number of the processes that the launcher started; without one, torch is not imported."""
    if recipe.engine.kind == "tinker" or not any(name in os.environ for name in LAUNCHED):
        return World()
    from fastslow.models.load import choose_device

    return World.launched(cpu=choose_device(recipe.model.device) == "cpu")


def assemble(recipe: Recipe, folder: Path, world: World, task: Task | None = None) -> Parts:
    """Load everything a recipe names; `task` replaces the recipe's."""
    if task is not None and recipe.stages:
        raise RecipeError("a task was given as an object, but the recipe has stages; keep one of them (task: given)")
    check_packages(recipe)
    task = task or build_task(recipe)
    refuse_contamination(task)
    seed_texts = choose_seed_texts(task, recipe.fast.seed_text)
    check_trackers(recipe.output.report_to)
    source = _load(recipe, folder, world)
    chat = ChatFormat(source.tokenizer, recipe.sampling.chat_template_kwargs)
    check_lengths(task, chat, seed_texts, recipe.sampling.max_tokens, source.max_length)
    engine = source.open()
    if recipe.sampling.ahead and recipe.method != "gepa" and not engine.pausable:
        raise RecipeError(
            f"sampling.ahead={recipe.sampling.ahead:g} stops sampling and continues it later, which the engine "
            f"{type(engine).__name__} cannot do; set sampling.ahead=0"
        )
    return Parts(task, engine, Player(task, engine, chat, recipe.grading), seed_texts)


@dataclass(frozen=True)
class _Source:
    """What an engine is made from; the prompts are checked before it is."""

    tokenizer: Any
    max_length: int | None
    open: Callable[[], Engine]


def _load(recipe: Recipe, folder: Path, world: World) -> _Source:
    """Only the modules of the chosen engine are imported: with a training service, the run needs no torch."""
    if not recipe.model.name.endswith(".gguf"):  # these would be converted
        resolve(recipe.model.name)
    if recipe.engine.kind == "tinker":
        from fastslow.engine.tinker.engine import TinkerEngine
        from fastslow.engine.tinker.sdk import connect
        from fastslow.models.tokenizer import describe

        model = describe(recipe.model.name, trust_remote_code=recipe.model.trust_remote_code)
        return _Source(model.tokenizer, model.max_length, lambda: TinkerEngine(recipe, model, connect(recipe)))
    from fastslow.engine.local.engine import LocalEngine
    from fastslow.models.load import load_policy
    from fastslow.slow.losses import objective

    served = served_length(recipe)
    policy = load_policy(recipe.model)
    longest = min((length for length in (policy.max_length, served) if length), default=None)
    return _Source(
        policy.tokenizer, longest, lambda: LocalEngine(policy, recipe, folder, world, objective(recipe.slow))
    )


def served_length(recipe: Recipe) -> int | None:
    """The longest sequence that all vLLM servers of a recipe serve; raises if one does not answer. None without servers."""
    if not isinstance(recipe.sampling.backend, VllmServers):
        return None
    from fastslow.engine.local.servers import connect

    return connect(recipe).max_length


def without_servers(recipe: Recipe) -> Recipe:
    """The recipe sampled in this process: a stored run can be measured when its vLLM servers are gone."""
    if not isinstance(recipe.sampling.backend, VllmServers):
        return recipe
    return recipe.model_copy(update={"sampling": recipe.sampling.model_copy(update={"backend": "auto"})})


def check_packages(recipe: Recipe) -> None:
    """Report a missing package before anything is loaded."""
    if recipe.sampling.backend == "vllm" and "vllm" not in sys.modules and find_spec("vllm") is None:
        raise RecipeError("sampling.backend=vllm needs the package vllm: pip install 'fastslow[vllm]'")
    if recipe.engine.kind == "tinker":
        from fastslow.engine.tinker.sdk import require_package

        require_package()


def choose_seed_texts(task: Task, wanted: str | dict[str, str] | None) -> dict[str, str]:
    """The task's seed texts, overridden by the recipe's."""
    texts = dict(task.seed_texts)
    if wanted is None:
        return texts
    if isinstance(wanted, str):
        return dict.fromkeys(texts, wanted)
    if unknown := sorted(set(wanted) - set(texts)):
        raise RecipeError(f"fast.seed_text names {unknown}, but this task's components are {sorted(texts)}")
    return {**texts, **wanted}


def check_lengths(
    task: Task, chat: ChatFormat, texts: Mapping[str, str], max_tokens: int, max_length: int | None
) -> None:
    """Raise if a problem does not fit the model. During training, a prompt that grows too long only scores 0."""
    if max_length is None:
        return
    for example in [*task.examples("train")[:CHECKED_EXAMPLES], *task.examples("validation")[:CHECKED_EXAMPLES]]:
        asks = scripted_rollout(task, example, texts=texts).asks
        if not asks:  # no prompt, so none can be too long
            continue
        asked = asks[0]
        length = len(chat.prompt(asked.messages, asked.context(texts)))
        if length + max_tokens > max_length:
            raise TaskError(
                f"the prompt of problem '{example.id}' has {length} tokens; with sampling.max_tokens={max_tokens} for the "
                f"answer it does not fit the model's {max_length}; lower sampling.max_tokens, make the problems smaller, "
                "or use a model, or vLLM servers, with a longer context"
            )
