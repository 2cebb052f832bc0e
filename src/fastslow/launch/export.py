"""Export a run as a model folder for any server: merged weights, the best context as system prompt, a model card."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from fastslow.base.errors import RunError, warn
from fastslow.base.terminal import without_bars
from fastslow.fast.pool import Pool
from fastslow.fast.reflection.prompt import fence_of
from fastslow.launch.assembly import AtStep, Snapshot, open_snapshot
from fastslow.launch.card import base_model, shown_recipe
from fastslow.launch.harness import CODE, code_files
from fastslow.models.chat import TextEncoder
from fastslow.runs import files
from fastslow.runs.folder import INTERNALIZED, RunFolder
from fastslow.runs.trust import require_trust
from fastslow.tasks.base import SYSTEM
from fastslow.tasks.skills import sections

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Dtype = Literal["float32", "bfloat16", "float16"]


def export_run(
    folder: str | Path,
    target: str | Path,
    step: AtStep = None,
    *,
    internalized: bool = False,
    dtype: Dtype | None = None,
    trust: bool = False,
) -> Path:
    """Write a run's policy and contexts to `target` as a standard Hugging Face folder.

    Weights are written as they were trained, or rounded to `dtype`. `internalized` takes the weights of `fastslow
    internalize`, which read the seed text only. `trust` allows a folder that was made elsewhere to execute the code of its
    model.
    """
    target = Path(target).absolute()
    if dtype is not None and dtype not in get_args(Dtype):
        raise RunError(f"dtype={dtype}: expected one of {', '.join(get_args(Dtype))}")
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise RunError(f"'{target}' exists and is not an empty folder; choose a new one")
    if internalized:
        run, folder = RunFolder.open(folder).path, Path(folder) / INTERNALIZED
        if not folder.is_dir():
            raise RunError(f"'{run}' has no internalized weights; make them with `fastslow internalize {run}`")
    snapshot = open_snapshot(folder, step)
    if snapshot.run.recipe.model.trust_remote_code:  # the task is not loaded
        require_trust(snapshot.run.path, snapshot.run.recipe, trust)
    for remark in snapshot.run.truncated():
        warn(f"{remark}; its numbers in the model card may be missing")
    if note := skills_note(snapshot.run, snapshot.pool):
        warn(note)
    best = snapshot.pool.best.context
    code = code_files(snapshot.run, best)
    pool = {"best": best.id, "step": snapshot.step, "contexts": snapshot.pool.to_dict()}
    others = {
        "contexts.json": json.dumps(pool, indent=2, ensure_ascii=False),
        "README.md": model_card(snapshot.run, snapshot.step, snapshot.pool),
        **code,
    }
    # A harness writes the prompts into its messages itself.
    with without_bars():
        save_policy(snapshot, target, None if code else best.texts.get(SYSTEM), others, dtype)
    return target


def save_policy(
    snapshot: Snapshot,
    target: Path,
    system: str | None = None,
    others: Mapping[str, str] | None = None,
    dtype: Dtype | None = None,
) -> None:
    """Write the policy of a run as a model folder, with the adapter merged, complete or not at all; with a text that its chat
    template then begins with, and other files. A folder that cannot be written is found before the model is loaded."""
    folder = target.with_name(files.TEMPORARY + target.name)
    with files.nothing_left_behind(target.parent):
        try:
            with files.explained(target):
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
            from fastslow.models.load import load_trained  # torch takes seconds to import

            model, tokenizer = load_trained(snapshot.run.recipe.model, snapshot.weights, dtype)
            if system is not None:
                set_default_system(tokenizer, system)
            with files.explained(target):
                model.save_pretrained(folder)
                tokenizer.save_pretrained(folder)
                for name, text in (others or {}).items():
                    (folder / name).write_text(text)
                mode = (folder / "config.json").stat().st_mode
                for file in folder.glob("*.safetensors"):  # written for their owner alone
                    file.chmod(mode)
                folder.rename(target)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def set_default_system(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    """Make the chat template put `text` at the start of the system message, as training does with a context."""
    quoted = json.dumps(TextEncoder(tokenizer).defused(text), ensure_ascii=False)
    tokenizer.chat_template = (
        f"{{%- set context = {quoted} -%}}"
        "{%- if messages and messages[0]['role'] == 'system' -%}"
        "{%- set messages = [{'role': 'system', 'content': context + '\\n\\n' + messages[0]['content']}] + messages[1:] -%}"
        "{%- else -%}{%- set messages = [{'role': 'system', 'content': context}] + messages -%}{%- endif -%}"
    ) + str(tokenizer.chat_template or "")


def _internalized_note(run: RunFolder) -> str:
    numbers = run.read_json(f"{INTERNALIZED}.json")
    if numbers is None:
        return ""
    before, after = numbers["before"], numbers["after"]
    return (
        f"\nThis is the seed text: the weights were then trained to do without the evolved text what they did with it "
        f"(`fastslow internalize`). Validation reward: {before['best context']['mean']:.3f} with that text before; under the "
        f"seed text {before['seed']['mean']:.3f} before and {after['seed']['mean']:.3f} after.\n"
    )


def skills_note(run: RunFolder, pool: Pool) -> str:
    """What becomes of a text that was shown in part: a chat template cannot choose."""
    count, entries = run.recipe.fast.skills, len(sections(pool.best.context.texts.get(SYSTEM, "")).entries)
    if count is None or entries <= count:
        return ""
    return (
        f"the model was trained with fast.skills={count}: a question was shown {count} of the {entries} entries of the "
        "context. A chat template cannot choose them and shows all; `fastslow serve` shows those that match the question"
    )


def model_card(run: RunFolder, step: int, pool: Pool) -> str:
    """What was trained, how, and the evaluations during training."""
    recipe = run.recipe
    rows = [row for row in run.rows("evals") if row["step"] <= step]
    table = [
        "| step | context | problems | mean@k | 95% interval | best@k | k | training rollouts |",
        "|---|---|---|---|---|---|---|---|",
        *(
            f"| {row['step']} | {label} | {score['problems']} | {score['mean']:.3f} | {score['low']:.3f}–{score['high']:.3f} "
            f"| {score['best']:.3f} | {score['k']} | {row['rollouts_slow'] + row['rollouts_fast']} |"
            for row in rows
            for label, score in row["results"].items()
        ),
    ]
    shown = [(name, text, fence_of([text])) for name, text in pool.best.context.texts.items()]
    texts = "\n\n".join(f"**{name}**\n\n{fence}text\n{text}\n{fence}" for name, text, fence in shown)
    placed = (
        "The prompts below stand in `harness.json` beside the code, which `fastslow.load_harness` runs"
        if run.read_json(CODE)
        else "The chat template puts the context\nbelow in front of every system message"
    )
    note = skills_note(run, pool)
    tasks = ", ".join(Path(task.name).name for task in recipe.tasks)
    based = f"base_model: {known}\n" if (known := base_model(recipe.model.name)) else ""
    return f"""---
{based}library_name: transformers
tags: [fastslow, reinforcement-learning]
---

# {Path(recipe.model.name).name} trained on {tasks}

Trained with `fastslow` (method `{recipe.method}`, {step} steps, seed {recipe.seed}). {placed};
`contexts.json` holds the whole pool.
{_internalized_note(run)}{note and f"{chr(10)}{note[0].upper()}{note[1:]}.{chr(10)}"}
## Context

{texts}

## Evaluations during training, on validation problems, one seed

{chr(10).join(table)}

## Recipe

```yaml
{shown_recipe(recipe)}```
"""
