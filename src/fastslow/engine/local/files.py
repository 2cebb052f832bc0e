"""The files of a checkpoint: model or adapter, tokenizer, optimizer, schedule; with FSDP also the weights by shard names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from accelerate.utils import (
    is_peft_model,
    load_fsdp_model,
    load_fsdp_optimizer,
    save_fsdp_model,
    save_fsdp_optimizer,
)
from accelerate.utils.constants import FSDP_MODEL_NAME
from safetensors.torch import load_file

from fastslow.base.errors import RunError, cause

if TYPE_CHECKING:
    from fastslow.engine.local.trainer import Trainer

SHARDED = f"{FSDP_MODEL_NAME}.bin"
"""The file that FSDP adds to a checkpoint."""
OPTIMIZER, SCHEDULE = "optimizer.pt", "scheduler.pt"


def save(trainer: Trainer, folder: Path) -> None:
    """Write model or adapter, optimizer and schedule; raises on every process if one fails."""
    problem = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_model(trainer, folder)
        if trainer.sharded:
            plugin = trainer.accelerator.state.fsdp_plugin
            save_fsdp_model(plugin, trainer.accelerator, trainer.model, str(folder), adapter_only=True)
            save_fsdp_optimizer(plugin, trainer.accelerator, trainer.optimizer, trainer.model, str(folder))
        elif trainer.world.main:
            torch.save(trainer.optimizer.state_dict(), folder / OPTIMIZER)
        if trainer.world.main:
            torch.save(trainer.scheduler.state_dict(), folder / SCHEDULE)
    except Exception as error:  # a full disk raises OSError, RuntimeError or a safetensors error
        problem = cause(error)
    if problems := [text for text in trainer.world.gather(problem) if text]:
        raise RunError(problems[0])


def save_model(trainer: Trainer, folder: Path) -> None:
    state = trainer.accelerator.get_state_dict(trainer.model) if trainer.sharded else None
    if trainer.world.main:
        trainer.model.save_pretrained(folder, state_dict=state)
        trainer.tokenizer.save_pretrained(folder)


def load(trainer: Trainer, folder: Path) -> None:
    model = trainer.model
    if trainer.sharded and trainer.optimizer is not None:
        plugin = trainer.accelerator.state.fsdp_plugin
        load_fsdp_model(plugin, trainer.accelerator, model, str(folder), adapter_only=True)
    elif is_peft_model(model):
        model.load_adapter(str(folder), model.active_adapters[0], is_trainable=True)
    else:
        for file in sorted(folder.glob("model*.safetensors")):
            model.load_state_dict(load_file(file), strict=False)
    trainer.version += 1


def resume(trainer: Trainer, folder: Path) -> None:
    """Prepare the trainer with the weights, the optimizer and the schedule of a checkpoint."""
    if (folder / SHARDED).exists() != trainer.sharded:
        saved, now = ("without FSDP", "with it") if trainer.sharded else ("with FSDP", "without")
        raise RunError(
            f"'{folder}' was saved {saved} and cannot be resumed {now}: its optimizer state has another format; launch it as "
            "before"
        )
    if trainer.sharded:
        trainer.prepare()
        load(trainer, folder)
        plugin = trainer.accelerator.state.fsdp_plugin
        load_fsdp_optimizer(
            plugin, trainer.accelerator, trainer.optimizer, trainer.model, str(folder), adapter_only=True
        )
    else:
        load(trainer, folder)
        trainer.prepare()
        place = trainer.device if trainer.world.size > 1 and trainer.device.type != "cpu" else "cpu"
        trainer.optimizer.load_state_dict(torch.load(folder / OPTIMIZER, map_location=place, weights_only=True))
    trainer.scheduler.load_state_dict(torch.load(folder / SCHEDULE, weights_only=True))
    trainer.version = trainer.scheduler.last_epoch
