"""Export a run as a model folder for any server: merged weights, the best context as system prompt, a model card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from fastslow.errors import RunError
from fastslow.fast.pool import Pool
from fastslow.models.encode import TextEncoder
from fastslow.models.load import load_trained
from fastslow.recipe import dump_recipe
from fastslow.runs import files
from fastslow.runs.folder import INTERNALIZED, RunFolder
from fastslow.runs.trust import require_trust
from fastslow.snapshot import Snapshot, open_snapshot
from fastslow.tasks.base import SYSTEM


def export_run(
    folder: str | Path, target: str | Path, step: int | None = None, *, internalized: bool = False, trust: bool = False
) -> Path:
    """Write a run's policy and contexts to `target` as a standard Hugging Face folder.

    `internalized` takes the weights of `fastslow internalize`, which read the seed text only. `trust` allows a folder that
    was made elsewhere to execute the code of its model.
    """
    target = Path(target)
    if target.exists() and any(target.iterdir()):
        raise RunError(f"'{target}' is not empty; choose a new folder")
    if internalized:
        folder = _internalized(Path(folder))
    snapshot = open_snapshot(folder, step)
    if snapshot.run.recipe.model.trust_remote_code:  # the task is not loaded
        require_trust(snapshot.run.path, snapshot.run.recipe, trust)
    model, tokenizer = load_trained(snapshot.run.recipe.model, snapshot.weights)
    best = snapshot.pool.best.context
    if SYSTEM in best.texts:
        set_default_system(tokenizer, best.texts[SYSTEM])
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    pool = {"best": best.id, "step": snapshot.step, "contexts": snapshot.pool.to_dict()}
    (target / "contexts.json").write_text(json.dumps(pool, indent=2, ensure_ascii=False))
    (target / "README.md").write_text(model_card(snapshot.run, snapshot.step, snapshot.pool))
    return target


def _internalized(run: Path) -> Path:
    RunFolder.open(run)
    if not (run / INTERNALIZED).is_dir():
        raise RunError(f"'{run}' has no internalized weights; make them with `fastslow internalize {run}`")
    return run / INTERNALIZED


def save_policy(snapshot: Snapshot, target: Path) -> None:
    """Write only the policy of a run as a model folder, with the adapter merged and the chat template unchanged."""
    model, tokenizer = load_trained(snapshot.run.recipe.model, snapshot.weights)
    with files.explained(target):
        temporary = target.with_name(files.TEMPORARY + target.name)
        shutil.rmtree(temporary, ignore_errors=True)
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        temporary.rename(target)


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
    texts = "\n\n".join(f"**{name}**\n\n```text\n{text}\n```" for name, text in pool.best.context.texts.items())
    tasks = ", ".join(task.name for task in recipe.tasks)
    return f"""---
base_model: {recipe.model.name}
library_name: transformers
tags: [fastslow, reinforcement-learning]
---

# {Path(recipe.model.name).name} trained on {tasks}

Trained with `fastslow` (method `{recipe.method}`, {step} steps, seed {recipe.seed}). The chat template puts the context
below in front of every system message; `contexts.json` holds the whole pool.
{_internalized_note(run)}
## Context

{texts}

## Evaluations during training, on validation problems, one seed

{chr(10).join(table)}

## Recipe

```yaml
{dump_recipe(recipe)}```
"""
