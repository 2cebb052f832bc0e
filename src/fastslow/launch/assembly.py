"""Build the task, the engine and the player from a recipe, and open a run at one of its checkpoints.

torch and transformers are imported when they are needed: a mistake that can be seen without them must not wait for them.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fastslow.base.errors import RecipeError, RunError, TaskError, cause, warn
from fastslow.base.text import one_line, quoted
from fastslow.base.world import World
from fastslow.engine.base import Engine
from fastslow.engine.kind import find_engine
from fastslow.fast.pool import Pool
from fastslow.fast.reflection.base import kind_of
from fastslow.models.chat import ChatFormat
from fastslow.models.tokenizer import resolve
from fastslow.recipe import Recipe, VllmServers
from fastslow.recipe.parts import OPTIMIZER
from fastslow.recipe.read import EMBEDDED, read_stored_recipe
from fastslow.rollouts.play import Player
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.runs.trackers import check_trackers
from fastslow.runs.trust import require_trust
from fastslow.sandbox.signature import LONGEST
from fastslow.slow.losses import objective, try_out
from fastslow.state import STATE
from fastslow.tasks import Task
from fastslow.tasks.registry import build_task
from fastslow.tasks.scripted import scripted_rollout
from fastslow.tasks.skills import library_of
from fastslow.tasks.stages import refuse_contamination

CHECKED_EXAMPLES = 64
FOREIGN = 0.4
"""The share of words outside the embedded model's vocabulary, or of questions unlike those that it has learnt, above which
somebody else's task is assumed."""
ITS_FORM = re.compile(r"\w : \w")
"""Made-up words and a list."""
LAUNCHED = ("LOCAL_RANK", "WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
"""Variables by which accelerate knows that a launcher has started this process."""


@dataclass(frozen=True)
class Parts:
    task: Task
    engine: Engine
    player: Player
    seed_texts: Mapping[str, str]


def check_components(recipe: Recipe, task: Task, texts: Mapping[str, str]) -> None:
    """Raise if the task has code and the optimizer does not know what that is, or if it begins with code that cannot run."""
    for each in task.components:
        if each.kind != "code":
            continue
        optimizer = recipe.fast.optimizer.name
        if recipe.method != "rl" and not OPTIMIZER.registry.find(optimizer).evolves_code:
            raise RecipeError(
                f"fast.optimizer={optimizer} writes prompts only, and the task's component '{each.name}' is code; set "
                "fast.optimizer=gepa, or method=rl"
            )
        if refusal := kind_of(each).check(texts[each.name], len, LONGEST):
            raise TaskError(f"the code that '{each.name}' starts from cannot run: {refusal.reason}")


def find_world(recipe: Recipe) -> World:
    """Rank and number of the processes that the launcher started; without one, torch is not imported."""
    if not find_engine(recipe).local or not any(name in os.environ for name in LAUNCHED):
        return World()
    from fastslow.models.load import choose_device

    return World.launched(cpu=choose_device(recipe.model.device) == "cpu")


def assemble(recipe: Recipe, folder: Path, world: World, task: Task | None = None) -> Parts:
    """Load everything a recipe names; `task` replaces the recipe's."""
    if task is not None and recipe.stages:
        raise RecipeError("a task was given as an object, but the recipe has stages; keep one of them (task: given)")
    engine = find_engine(recipe)
    engine.require(recipe)
    task = task or build_task(recipe)
    refuse_contamination(task)
    seed_texts = choose_seed_texts(task, recipe.fast.seed_text)
    check_components(recipe, task, seed_texts)
    check_trackers(recipe.output.report_to)
    if not recipe.model.name.endswith(".gguf"):  # these would be converted
        resolve(recipe.model.name)
    if engine.local and recipe.method in ("fst", "rl"):
        try_out(recipe.slow)
    source = engine.load(recipe, folder, world)
    chat = ChatFormat(source.tokenizer, recipe.sampling.chat_template_kwargs)
    library = library_of(task, recipe.fast.skills)
    shown = library.over(seed_texts) if library else seed_texts
    check_lengths(task, chat, shown, recipe.sampling.max_tokens, source.max_length)
    if said := foreign_words(recipe, task, chat):
        warn(said)
    opened = source.open(objective(recipe.slow))
    if recipe.sampling.ahead and recipe.method != "gepa" and not opened.pausable:
        raise RecipeError(
            f"sampling.ahead={recipe.sampling.ahead:g} stops sampling and continues it later, which the engine "
            f"{type(opened).__name__} cannot do; set sampling.ahead=0"
        )
    return Parts(task, opened, Player(task, opened, chat, recipe.grading, library), seed_texts)


def without_servers(recipe: Recipe) -> Recipe:
    """The recipe sampled in this process: a stored run can be measured when its vLLM servers are gone."""
    if not isinstance(recipe.sampling.backend, VllmServers):
        return recipe
    return changed(recipe, sampling={"backend": "auto"})


def changed(recipe: Recipe, **sections: Mapping[str, object]) -> Recipe:
    """The recipe with other settings in some of its sections; they are not checked again."""
    copies = {name: getattr(recipe, name).model_copy(update=settings) for name, settings in sections.items()}
    return recipe.model_copy(update=copies)


def choose_seed_texts(task: Task, wanted: str | dict[str, str] | None) -> dict[str, str]:
    """The task's seed texts, overridden by the recipe's."""
    texts = dict(task.seed_texts)
    if wanted is None:
        return texts
    if isinstance(wanted, str):
        return texts | {each.name: wanted for each in task.components if each.kind != "code"}
    if unknown := sorted(set(wanted) - set(texts)):
        raise RecipeError(f"fast.seed_text names {unknown}, but this task's components are {sorted(texts)}")
    return {**texts, **wanted}


def foreign_words(recipe: Recipe, task: Task, chat: ChatFormat) -> str:
    """What to say of problems that the embedded model has not learnt: of other words, or of another form."""
    if recipe.model.name != EMBEDDED:
        return ""
    known = {token.casefold() for token in chat.tokenizer.get_vocab()}
    texts = choose_seed_texts(task, recipe.fast.seed_text)
    asked = [scripted_rollout(task, example, texts=texts).asks for example in task.examples("train")[:CHECKED_EXAMPLES]]
    questions = [ask.question for asks in asked for ask in asks[:1]]
    words = [word for question in questions for word in re.findall(r"\w+", question.casefold())]
    foreign = Counter(word for word in words if word not in known)
    unlike = [question for question in questions if not ITS_FORM.search(question)]
    if foreign.total() > FOREIGN * len(words):
        shown = ", ".join(repr(word) for word, _ in foreign.most_common(3))
        why = f"{foreign.total() / len(words):.0%} of the words of these problems are none of them ({shown})"
    elif len(unlike) > FOREIGN * len(questions):
        why = f"it has only learnt questions like 'zorka : a b c', and these are others ({quoted(one_line(unlike[0], 40))})"
    else:
        return ""
    return (
        f"nano is for trying fastslow on its own tasks (rulebook, say) and knows {len(known)} lower-case tokens; {why}, so "
        "that its answers will be nonsense; use a chat model: a folder, model=Qwen/Qwen2.5-1.5B-Instruct, or, without a hub, "
        "model=smollm2"
    )


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


@dataclass(frozen=True)
class Snapshot:
    """A run at one of its checkpoints."""

    run: RunFolder
    step: int
    path: Path
    pool: Pool

    @property
    def weights(self) -> Path | None:
        """The folder with the policy's weights; None if they are frozen."""
        return None if self.run.recipe.method == "gepa" else self.path


AtStep = int | Literal["last"] | None
"""The step of a checkpoint; None is the best by training reward, which is the last unless the run fell."""


def open_snapshot(folder: str | Path, step: AtStep = None) -> Snapshot:
    """Open a run at a checkpoint. A damaged one is refused, never replaced."""
    run = RunFolder.open(folder)
    if step is None or step == "last":
        chosen = run.chosen_checkpoint(last=step == "last")
        if chosen is None:
            raise RunError(
                f"'{folder}' has no checkpoint yet; the first is saved at step {run.recipe.output.checkpoint_every}, or "
                "when the run is stopped"
            )
        step, path = chosen
        if step != (last := run.checkpoints.steps()[-1]):
            warn(
                f"'{folder}' is taken at step {step}, whose training reward was better than at its last step, {last}; "
                f"`--step last` (from Python: step='last') takes that"
            )
    else:
        path = run.checkpoints.get(step)
    state: dict[str, Any] = files.read_json(path / STATE) or {}
    try:
        return Snapshot(run, step, path, Pool.from_dict(state["pool"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(f"'{path / STATE}' is no state of a run ({cause(error)}); use another step") from error


def open_policy(
    folder: str | Path,
    step: AtStep = None,
    *,
    trust: bool = False,
    task: Task | None = None,
    servers: Sequence[str] = (),
) -> tuple[Snapshot, Parts]:
    """A run at a checkpoint, and its parts to sample with: there is no reference model and no tracker. This process samples,
    or the vLLM servers at the addresses that are given."""
    snapshot = open_snapshot(folder, step)
    recipe = require_trust(snapshot.run.path, snapshot.run.recipe, trust)
    if servers:
        override = f"sampling.backend={{vllm: {json.dumps(list(servers))}}}"
        recipe = read_stored_recipe(snapshot.run.path / "recipe.yaml", [override])
    else:
        recipe = without_servers(recipe)
    recipe = changed(recipe, slow={"kl": 0.0}, output={"report_to": []})
    parts = assemble(recipe, Path(folder), find_world(recipe), task)
    if snapshot.weights is not None:
        parts.engine.load(snapshot.weights)
    return snapshot, parts
