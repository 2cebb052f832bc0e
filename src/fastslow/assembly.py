"""Putting a run together: from a recipe to a task, a policy in a trainer, and a player that samples from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers.integrations import get_available_reporting_integrations

from fastslow.engine.local.sampler import PolicySampler
from fastslow.engine.local.trainer import FastSlowTrainer
from fastslow.errors import RecipeError, TaskError
from fastslow.fast.optimizers import find_optimizer
from fastslow.models.load import Policy, choose_device, load_policy
from fastslow.recipe import Recipe
from fastslow.rollouts.chat import ChatFormat
from fastslow.rollouts.play import Player
from fastslow.tasks import Task
from fastslow.tasks.contamination import refuse_contamination
from fastslow.tasks.registry import build_task
from fastslow.world import World

CHECKED_EXAMPLES = 64


@dataclass(frozen=True)
class Parts:
    """What a run is made of."""

    recipe: Recipe
    task: Task
    policy: Policy
    trainer: FastSlowTrainer
    sampler: PolicySampler
    chat: ChatFormat
    player: Player
    world: World
    seed_texts: Mapping[str, str]


def find_world(recipe: Recipe) -> World:
    """This process among those of the run, as its launcher started them."""
    return World.launched(cpu=choose_device(recipe.model.device) == "cpu")


def assemble(
    recipe: Recipe, folder: Path, world: World, weights: Path | None = None, task: Task | None = None
) -> Parts:
    """Load everything a recipe names; `weights` is a checkpoint to take the policy from, `task` stands for the recipe's."""
    if task is not None and recipe.stages:
        raise RecipeError("a task was given as an object, but the recipe has stages; keep one of them (task: given)")
    check_trackers(recipe.output.report_to)
    if recipe.method != "rl":
        find_optimizer(recipe.fast.optimizer)  # a package that it needs is missed before the model is loaded
    task = task or build_task(recipe)
    refuse_contamination(task)
    seed_texts = choose_seed_texts(task, recipe.fast.seed_text)
    policy = load_policy(recipe.model)
    chat = ChatFormat(policy.tokenizer, recipe.sampling.chat)
    check_lengths(task, chat, seed_texts, recipe.sampling.max_tokens, policy.max_length)
    trainer = FastSlowTrainer(policy, recipe, folder, world)
    if weights is not None:
        trainer._load_from_checkpoint(str(weights))
    sampler = PolicySampler(trainer, recipe.sampling)
    player = Player(task, sampler, chat, policy.max_length, world)
    return Parts(recipe, task, policy, trainer, sampler, chat, player, world, seed_texts)


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that are not installed, or that transformers does not know."""
    known = get_available_reporting_integrations()
    if missing := [name for name in names if name not in known]:
        raise RecipeError(
            f"output.report_to names {', '.join(missing)}, which cannot be reported to here; install the package of that "
            f"name, or name trackers that are there: {', '.join(known) or 'none'}"
        )


def choose_seed_texts(task: Task, wanted: str | dict[str, str] | None) -> dict[str, str]:
    """The task's seed texts, or the recipe's in their place."""
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
    """Refuse to start where problems do not fit the model; later, contexts that grow too long only score 0."""
    if max_length is None:
        return
    for example in [*task.examples("train")[:CHECKED_EXAMPLES], *task.examples("validation")[:CHECKED_EXAMPLES]]:
        ask = next(task.play_under(example, texts), None)
        if ask is None:  # nothing is asked, so nothing can be too long
            continue
        length = len(chat.prompt(ask.messages, ask.context(texts)))
        if length + max_tokens > max_length:
            raise TaskError(
                f"the prompt of problem '{example.id}' has {length} tokens; with sampling.max_tokens={max_tokens} for the "
                f"answer it does not fit the model's {max_length}; lower sampling.max_tokens, make the problems smaller, "
                "or take a model with a longer context"
            )
