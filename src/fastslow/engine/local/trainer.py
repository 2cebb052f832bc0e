"""TRL's trainer, one optimizer step at a time: TRL provides the loss, adapters, distribution and trackers.

It differs from stock TRL in the data, not in the loss: rows of zero-variance groups are left out, advantages are scaled for
the per-problem mean, and importance ratios are taken against the policy that sampled a row. `SharedPrefixTrainer` changes how
log-probabilities are computed, not their values.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from datasets import Dataset
from numpy.typing import ArrayLike, DTypeLike
from peft.tuners.lora import LoraLayer
from torch.distributed.tensor import DTensor
from torch.nn.utils import get_total_norm
from torch.optim.lr_scheduler import LambdaLR
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import pad, shuffle_sequence_dict, use_adapter

from fastslow.base.errors import RecipeError, RunError, cause
from fastslow.base.seeds import derive_seed
from fastslow.base.world import World
from fastslow.engine.base import Row, Update
from fastslow.engine.local.distill import Teacher, distillation
from fastslow.engine.local.fit import Fit, by_tokens, rows_of, vllm_share
from fastslow.engine.local.shared_prefix import SharedPrefixTrainer, unpadded
from fastslow.models.load import Policy
from fastslow.prefix.tree import lexicographic
from fastslow.recipe import Recipe, VllmServers


def trainer_config(recipe: Recipe, policy: Policy, folder: Path, world: World) -> GRPOConfig:
    """The recipe as TRL's config."""
    slow, sampling = recipe.slow, recipe.sampling
    rollouts = slow.problems * slow.group
    rows = rollouts // world.size if by_tokens(recipe, policy.device) else rows_of(recipe, world.size)
    if rollouts % (rows * world.size):
        raise RecipeError(
            f"{rollouts} rollouts per step (slow.problems={slow.problems} × slow.group={slow.group}) are not divisible by "
            f"{world.size} processes × {rows} rollouts of slow.microbatch={slow.microbatch}; lower slow.microbatch, or start "
            "fewer processes"
        )
    loss, options = slow.loss.name, slow.loss.options
    cispo = loss == "cispo"
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=rollouts // (rows * world.size),
        num_generations=slow.group,
        max_steps=slow.steps,
        learning_rate=slow.learning_rate,
        lr_scheduler_type="constant_with_warmup",  # see create_scheduler
        warmup_steps=slow.warmup_steps,
        adam_beta1=slow.betas[0],
        adam_beta2=slow.betas[1],
        weight_decay=slow.weight_decay,
        max_grad_norm=slow.max_grad_norm,
        loss_type="grpo" if loss == "gspo" else loss,
        importance_sampling_level="sequence" if loss == "gspo" else "token",
        epsilon=options.get("clip", 0.2),
        epsilon_high=options["ratio_cap"] if cispo else options["clip"],
        # Distillation has no KL penalty, but the divergence from the base model may be measured.
        beta=slow.kl if recipe.method != "distill" or recipe.evaluation.divergence else 0.0,
        # The k3 estimator times the importance ratio: its gradient is that of the KL divergence, also for older rollouts.
        use_bias_correction_kl=True,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_completion_length=sampling.max_tokens,
        chat_template_kwargs=sampling.chat_template_kwargs,
        use_vllm=sampling.backend == "vllm",
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=vllm_share(recipe, policy),
        vllm_enable_sleep_mode=sampling.vllm_sleep,
        vllm_max_model_length=policy.max_length,
        # Importance ratios use the sampler's log-probabilities, so no correction is needed.
        vllm_importance_sampling_correction=False,
        bf16=policy.autocast,
        use_cpu=policy.device == "cpu",
        gradient_checkpointing=recipe.model.gradient_checkpointing is True,
        trust_remote_code=recipe.model.trust_remote_code,
        seed=recipe.seed,
        logging_steps=1,
        save_strategy="no",
        report_to=recipe.output.report_to or "none",
        disable_tqdm=True,
    )


class FastSlowTrainer(SharedPrefixTrainer):
    """TRL's trainer without its training loop."""

    control: Any

    def __init__(self, policy: Policy, recipe: Recipe, folder: Path, world: World) -> None:
        self.world = world
        self.save_folder = folder
        self.has_servers = isinstance(recipe.sampling.backend, VllmServers)
        super().__init__(
            model=policy.model,
            reward_funcs=_graded_elsewhere,
            args=trainer_config(recipe, policy, folder, world),
            train_dataset=Dataset.from_dict({"prompt": []}),  # TRL requires one
            processing_class=policy.tokenizer,
            peft_config=policy.lora,
            shared_prefix=recipe.slow.shared_prefix,
        )
        self._refuse_sharded(recipe)
        self.fit = None
        """Chooses what passes through the model at a time; None where the recipe gives a number of rows."""
        if by_tokens(recipe, policy.device):
            self.fit = Fit(self.model, recipe, world, bf16=policy.autocast, sharded=self.is_fsdp_enabled)
        if policy.autocast:
            _leave_inputs_in_bf16(self.model)
        self.teacher = self._make_teacher() if recipe.method == "distill" else None
        self.remove_callback(PrinterCallback)

    def create_accelerator_and_postprocess(self) -> None:
        if os.environ.get("ACCELERATE_USE_FSDP") == "true":
            # Checkpoints have one file with all weights, so that every other command can read them.
            os.environ["FSDP_STATE_DICT_TYPE"] = "FULL_STATE_DICT"
            state = PartialState()
            if state.distributed_type == DistributedType.MULTI_CPU:
                # accelerate shards on accelerators only; on CPUs every process would silently hold all weights.
                state.distributed_type = DistributedType.MULTI_XPU
        super().create_accelerator_and_postprocess()

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Linear warm-up, then constant. transformers' own starts at 0, so that its first step trains nothing."""
        warmup = max(1, self.args.warmup_steps)
        if getattr(self, "lr_scheduler", None) is None:
            self.lr_scheduler: Any = LambdaLR(optimizer or self.optimizer, lambda done: min(1.0, (done + 1) / warmup))
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def prepare(self, checkpoint: Path | None = None) -> None:
        """Wrap the model, create the optimizer and open the trackers; restore a checkpoint if given."""
        # transformers' `train` sets everything up, then calls `_inner_training_loop`, overridden below.
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def _inner_training_loop(
        self,
        batch_size: int | None = None,
        args: Any = None,
        resume_from_checkpoint: str | None = None,
        trial: Any = None,
        ignore_keys_for_eval: Any = None,
    ) -> None:
        steps = self.args.max_steps
        self.accelerator.free_memory()
        self._init_training_state(steps, steps, 1, resume_from_checkpoint, None)
        self._prepare_for_training(steps, None, resume_from_checkpoint)
        self.model_wrapped.zero_grad()
        self.control = self.callback_handler.on_train_begin(self.args, self.state, self.control)

    def step(self, update: Update) -> dict[str, float | None]:
        """Make one optimizer step and return TRL's metrics."""
        model = self.model_wrapped
        self.control = self.callback_handler.on_step_begin(self.args, self.state, self.control)
        model.train()
        loss = self._accumulate(model, update)
        norm = self._get_grad_norm(model, grad_norm=self._clip_grad_norm(model))
        if not update.rows:
            # With a zero gradient, Adam's momentum would still change the weights; without a gradient it does not.
            for parameter in self.model.parameters():
                parameter.grad = None
        self.optimizer.step()
        learning_rate = self._get_learning_rate()
        if not self.accelerator.optimizer_step_was_skipped:
            self.lr_scheduler.step()
        model.zero_grad()
        self.state.global_step += 1
        self.state.epoch = self.state.global_step / self.args.max_steps
        self.control = self.callback_handler.on_step_end(self.args, self.state, self.control)
        largest = self._largest_weight()
        logs: dict[str, float | None] = {
            "loss": self.accelerator.gather(loss).mean().item(),
            "grad_norm": norm.item() if isinstance(norm, torch.Tensor) else norm,
            "learning_rate": learning_rate,
        }
        self.log(logs)  # adds the metrics of the loss, and sends all to the trackers
        return {**logs, "largest_weight": largest}

    def _accumulate(self, model: Any, update: Update) -> torch.Tensor:
        """The loss, whose gradient is added up over microbatches; smaller ones after running out of GPU memory."""
        while True:
            try:
                return self._accumulate_once(model, update)
            except torch.OutOfMemoryError:
                # Other processes would wait for this one's part of the gradient.
                if self.fit is None or self.world.size > 1 or not self.fit.shrink():
                    raise
            # Outside the handler: there, the error still holds the activations.
            model.zero_grad()
            self._metrics["train"].clear()
            torch.cuda.empty_cache()

    def _accumulate_once(self, model: Any, update: Update) -> torch.Tensor:
        # Row order in microbatches and dropout depend on the step number only.
        torch.manual_seed(derive_seed(self.args.seed, "update", update.step, self.world.rank))
        if self.fit:
            self.shares(model)  # decides how rows are counted
            lengths = [len(row.turn.prompt_ids) + len(row.turn.completion.ids) for row in update.rows]
            self.fit.choose(max(lengths, default=1), self.optimizer)
        batch = self._tensors(update)
        if not self.shared_prefix:  # as stock TRL does; with it, rows that share a prefix stay together
            batch = shuffle_sequence_dict(batch)
        parts = self._parts(batch, len(batch["advantages"]) // self.args.steps_per_generation)
        count = self._passes(parts)
        # TRL divides by this number what it averages over microbatches; `filled` is relative to that.
        self.current_gradient_accumulation_steps = self.args.steps_per_generation
        every_batch = self.accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False)
        deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
        loss = torch.zeros((), device=self.args.device)
        self._mismatch = torch.zeros(2, device=self.args.device)
        tokens = []
        inputs: dict[str, Any] = {}
        for number in range(count):
            inputs = self._microbatch(batch, parts[number], update) if number < len(parts) else _nothing(inputs)
            last = number == count - 1
            self.accelerator.gradient_state._set_sync_gradients(last)
            together = last or every_batch or deepspeed
            with nullcontext() if together else self.accelerator.no_sync(model=model):
                loss += self.training_step(model, inputs, None)
            tokens.append(inputs["completion_mask"].sum().float())
        self._average_metrics(torch.stack(tokens))
        return loss

    def _average_metrics(self, tokens: torch.Tensor) -> None:
        """Mean of each metric over all tokens of the step; TRL would average over microbatches, however large. `tokens` are
        those of each microbatch in this process."""
        weights = self.accelerator.reduce(tokens, reduction="sum").tolist()
        metrics = self._metrics["train"]
        for name, values in metrics.items():
            if len(values) == len(weights) and any(weights):
                metrics[name] = [float(np.average(values, weights=weights))]
        total, count = self.accelerator.reduce(self._mismatch, reduction="sum").tolist()
        if count:
            metrics["sampler_mismatch"].append(total / count)

    def _parts(self, batch: dict[str, Any], rows: int) -> list[slice]:
        """Rows of a batch that pass through the model together: as many tokens as fit, or `rows` rows."""
        count = len(batch["advantages"])
        if self.fit is None:
            return [slice(start, start + rows) for start in range(0, count, rows)]
        prompts, completions = (
            unpadded(batch[f"{part}_ids"], batch[f"{part}_mask"]) for part in ("prompt", "completion")
        )
        width = None if self.shared_prefix else batch["prompt_ids"].size(1) + batch["completion_ids"].size(1)
        whole = [np.concatenate(pair) for pair in zip(prompts, completions, strict=True)]
        return self.fit.cut(whole, width)

    def _passes(self, parts: Sequence[slice]) -> int:
        """Passes that every process makes, as many as one of them has parts: sharded weights are gathered in each."""
        return self.world.largest(len(parts)) if self.fit else len(parts)

    def _microbatch(self, batch: dict[str, Any], part: slice, update: Update) -> dict[str, Any]:
        """Some rows of a batch, with their share of the update's rows as these losses need it that average over rows."""
        inputs = {key: value[part] if value.ndim else value for key, value in batch.items()}
        rows = len(inputs["advantages"]) * self.world.size * self.args.steps_per_generation
        return {**inputs, "filled": torch.tensor(rows / max(len(update.rows), 1), device=self.args.device)}

    def _largest_weight(self) -> float:
        """The largest absolute value of a trained weight; NaN or infinity if one is."""
        weights = [weight.detach() for weight in self.model.parameters() if weight.requires_grad and weight.numel()]
        largest = get_total_norm(weights, math.inf)
        if isinstance(largest, DTensor):
            largest = largest.full_tensor()
        return self.accelerator.gather(largest.to(self.args.device)).max().item()

    def close(self) -> None:
        """Close the trackers."""
        self.control = self.callback_handler.on_train_end(self.args, self.state, self.control)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The microbatches are already prepared."""
        return inputs

    def save(self, folder: Path) -> None:
        """Write model or adapter, optimizer and trainer state to a folder; raises on every process if one fails."""
        self.save_folder = folder
        problem = None
        try:
            # Skips TRL's own method, which adds a model card to the run folder.
            super(GRPOTrainer, self)._save_checkpoint(self.model, trial=None)
        except Exception as error:  # a full disk raises OSError, RuntimeError or a safetensors error
            problem = cause(error)
        if problems := [text for text in self.world.gather(problem) if text]:
            raise RunError(problems[0])
        if self.world.main:
            self._flatten(folder)
        self.world.gather(None)  # no process reads the folder before it is complete

    def _refuse_sharded(self, recipe: Recipe) -> None:
        """Reject features that need all weights in one process if the weights are sharded."""
        if self.accelerator.distributed_type not in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            return
        if recipe.method == "distill":
            raise RecipeError(
                "method=distill copies the trained weights, which FSDP and DeepSpeed shard over processes; use one GPU or "
                "data parallelism without sharding"
            )
        if recipe.evaluation.divergence and recipe.method != "gepa":
            raise RecipeError(
                "evaluation.divergence needs all weights in one process, but FSDP and DeepSpeed shard them; set "
                "evaluation.divergence=false and measure after training: fastslow divergence RUN"
            )

    def _make_teacher(self) -> Teacher:
        with self.accelerator.autocast():
            return Teacher(self.accelerator.unwrap_model(self.model))

    @staticmethod
    def _flatten(folder: Path) -> None:
        """Move the saved files out of the subfolder that transformers creates."""
        for inner in folder.glob("checkpoint-*"):
            for item in inner.iterdir():
                item.rename(folder / item.name)
            inner.rmdir()

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.save_folder)

    def report(self, metrics: dict[str, float]) -> None:
        """Send metrics to the trackers, in addition to those of the update."""
        super(GRPOTrainer, self).log(metrics)

    def _tensors(self, update: Update) -> dict[str, Any]:
        """This process's share of the rows, padded as in TRL, with reference log-probabilities."""
        device = self.accelerator.device
        share = self.args.steps_per_generation * self.world.size
        fillers = -len(update.rows) % share or (0 if update.rows else share)
        if self.shared_prefix:  # sorted, so that rows with the same prefix are in the same process and microbatch
            if self.fit:  # with their completions: a later turn then follows the turns that it begins with
                order = lexicographic([[*row.turn.prompt_ids, *row.turn.completion.ids] for row in update.rows])
                ordered = [update.rows[index] for index in order]
            else:
                ordered = sorted(update.rows, key=lambda row: (tuple(row.turn.prompt_ids), tuple(row.teacher_prompt)))
            size = (len(ordered) + fillers) // self.world.size
            mine = slice(self.world.rank * size, (self.world.rank + 1) * size)
        else:
            ordered, mine = list(update.rows), slice(self.world.rank, None, self.world.size)
        rows: list[Row | None] = [*ordered, *[None] * fillers][mine]
        pad_id = self._tokenizer.pad_token_id

        def padded(values: Iterable[ArrayLike], fill: Any, side: str, kind: DTypeLike = np.int64) -> torch.Tensor:
            tensors = [torch.from_numpy(np.array(value, dtype=kind)) for value in values]
            return pad(tensors, padding_value=fill, padding_side=side).to(device)

        def mask(values: Sequence[Sequence[int]], kept: Iterable[bool], side: str) -> torch.Tensor:
            return padded((np.full(len(ids), keep) for ids, keep in zip(values, kept, strict=True)), 0, side)

        prompts = [row.turn.prompt_ids if row else [pad_id] for row in rows]
        completions = [row.turn.completion.ids if row else [pad_id] for row in rows]
        batch: dict[str, Any] = {
            "prompt_ids": padded(prompts, pad_id, "left"),
            "prompt_mask": mask(prompts, [True] * len(rows), "left"),
            "completion_ids": padded(completions, pad_id, "right"),
            "completion_mask": mask(completions, [row is not None for row in rows], "right"),
            "advantages": torch.tensor([row.advantage if row else 0.0 for row in rows], device=device),
            "num_items_in_batch": torch.tensor(sum(len(row.turn.completion.ids) for row in update.rows), device=device),
            "sampled_logps": padded(
                [row.turn.completion.logprobs if row else [0.0] for row in rows], 0.0, "right", np.float32
            ),
            "fresh": torch.tensor(
                [row is not None and row.policy_step == update.step - 1 for row in rows], device=device
            ),
        }
        # Updates without teacher prompts have the policy loss, also in an engine with a teacher.
        if self.teacher and all(row.teacher_prompt for row in update.rows):
            read = [row.teacher_prompt if row else [pad_id] for row in rows]
            batch["teacher_ids"] = padded(read, pad_id, "left")
            batch["teacher_mask"] = mask(read, [True] * len(rows), "left")
            return batch
        if self.use_vllm or self.has_servers or any(row.policy_step < update.step - 1 for row in update.rows):
            batch["old_per_token_logps"] = self._behaviour_logprobs(batch)
        if self.beta:
            batch["ref_per_token_logps"] = self._reference_logprobs(batch)
        return batch

    def _behaviour_logprobs(self, batch: dict[str, Any]) -> torch.Tensor:
        """The sampler's log-probabilities; for rows where some are missing, the current policy's."""
        sampled = batch["sampled_logps"]
        unknown = ~sampled.isfinite().all(dim=1)
        if unknown.any():
            incomplete = {key: value[unknown] if value.ndim else value for key, value in batch.items()}
            sampled = sampled.index_put((unknown,), self._score(self.model, incomplete, everywhere=False))
        return sampled

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if self.teacher and "teacher_ids" in inputs:
            return self._distillation_loss(model, self.teacher, inputs)
        loss = super()._compute_loss(model, inputs)
        self._note_mismatch(inputs)
        # These losses average over the rows of a microbatch, fillers included, and then over microbatches.
        return loss * inputs["filled"] if self.loss_type in ("grpo", "dr_grpo") else loss

    def _distillation_loss(self, model: Any, teacher: Teacher, inputs: dict[str, Any]) -> torch.Tensor:
        with self.accelerator.autocast():
            total, kl, entropy = distillation(model, teacher, inputs, self.temperature, self.shares(model))
        sums = torch.stack([kl.sum(), entropy.sum(), torch.tensor(float(kl.numel()), device=total.device)])
        kl_sum, entropy_sum, tokens = self.accelerator.reduce(sums, reduction="sum").tolist()
        if tokens:
            self._metrics["train"]["distillation"].append(kl_sum / tokens)
            self._metrics["train"]["entropy"].append(entropy_sum / tokens)
        # The mean over the tokens of all processes: accelerate averages gradients over processes.
        return total * self.accelerator.num_processes / inputs["num_items_in_batch"].clamp(min=1)

    @torch.no_grad()
    def _note_mismatch(self, inputs: dict[str, Any]) -> None:
        """Add up how the sampler's and the trainer's log-probabilities differ, in rows sampled by the current policy."""
        sampled = inputs["sampled_logps"]
        known = inputs["completion_mask"].bool() & inputs["fresh"][:, None] & sampled.isfinite()
        gap = (self.scored - sampled).abs()[known]
        self._mismatch += torch.stack([gap.sum().float(), known.sum().float()])

    def _reference_logprobs(self, batch: dict[str, Any]) -> torch.Tensor:
        """Log-probabilities under the base model: the reference model, or the policy with its adapter disabled."""
        if self.ref_model is not None:
            return self._score(self.ref_model, batch)
        with (
            use_adapter(self.accelerator.unwrap_model(self.model), adapter_name=None),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
        ):
            return self._score(self.model, batch)

    @torch.no_grad()
    def _score(self, model: Any, batch: dict[str, Any], *, everywhere: bool = True) -> torch.Tensor:
        """Log-probabilities of a batch's completions under a model; `everywhere`: all processes score a batch now."""
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        width = batch["completion_ids"].size(1)
        parts = self._parts(batch, self.args.per_device_train_batch_size)
        found = []
        for number in range(self._passes(parts) if everywhere else len(parts)):
            part = parts[number] if number < len(parts) else slice(1)
            found.append(self._get_per_token_logps_and_entropies(model, ids[part], mask[part], width)[0])
        return torch.cat(found[: len(parts)])


def _nothing(inputs: dict[str, Any]) -> dict[str, Any]:
    """A microbatch without a gradient, for a process that has none left while others have: one row without a completion."""
    first = {key: value[:1] if value.ndim else value for key, value in inputs.items()}
    return {**first, "completion_mask": torch.zeros_like(first["completion_mask"])}


def _leave_inputs_in_bf16(model: Any) -> None:
    """Adapters get their inputs as they are. PEFT would copy each to the adapter's fp32, and autocast each copy back to bf16:
    the same numbers, but two kernels and one stored copy for every adapted layer."""
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.cast_input_dtype_enabled = False


def _graded_elsewhere(**_: Any) -> list[float]:
    raise AssertionError("rewards come with the rollouts")
