"""The slow loop on TRL: we own the data side (contexts, rollouts, grading, advantages), TRL the gradient side (loss,
accumulation, optimizer, adapters, distribution, weight sync).

The trainer pulls: whenever it wants the next batch it takes the next `Update` from the loop's generator, so the method
itself reads top to bottom in loop.py. Deviations from stock TRL, each of them data: rows of zero-variance groups are left
out, advantages are scaled for the per-problem mean, and importance ratios are against the policy that sampled a row. How
log-probabilities are computed, though not what they are, is `SharedPrefixTrainer`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import DistributedType
from datasets import Dataset
from numpy.typing import ArrayLike, DTypeLike
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import pad, use_adapter

from fastslow.engine.local.distill import Teacher, distillation
from fastslow.engine.local.shared_prefix import SharedPrefixTrainer
from fastslow.errors import RecipeError
from fastslow.models.load import Policy
from fastslow.recipe import Recipe
from fastslow.seeds import derive_seed
from fastslow.slow.update import Row, Update
from fastslow.world import World


def trainer_config(recipe: Recipe, policy: Policy, folder: Path, world: World) -> GRPOConfig:
    """The recipe in TRL's words."""
    slow, sampling = recipe.slow, recipe.sampling
    rollouts = slow.problems * slow.group
    if rollouts % (slow.microbatch * world.size):
        raise RecipeError(
            f"{rollouts} rollouts a step (slow.problems={slow.problems} × slow.group={slow.group}) do not divide over "
            f"{world.size} processes of slow.microbatch={slow.microbatch}; lower slow.microbatch"
        )
    cispo = slow.loss == "cispo"
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=slow.microbatch,
        gradient_accumulation_steps=rollouts // (slow.microbatch * world.size),
        num_generations=slow.group,
        max_steps=slow.steps,
        learning_rate=slow.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=slow.warmup_steps,
        adam_beta1=slow.betas[0],
        adam_beta2=slow.betas[1],
        weight_decay=slow.weight_decay,
        max_grad_norm=slow.max_grad_norm,
        loss_type="grpo" if slow.loss == "gspo" else slow.loss,
        importance_sampling_level="sequence" if slow.loss == "gspo" else "token",
        epsilon=slow.clip,
        epsilon_high=slow.ratio_cap if cispo else slow.clip,
        # Distillation has no penalty, but divergence from the base model may have to be measured.
        beta=slow.kl if recipe.method != "distill" or recipe.evaluation.divergence else 0.0,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_completion_length=sampling.max_tokens,
        chat_template_kwargs=sampling.chat_template_kwargs,
        use_vllm=sampling.backend == "vllm",
        vllm_mode="colocate",
        vllm_gpu_memory_utilization=sampling.vllm_memory,
        vllm_enable_sleep_mode=sampling.vllm_sleep and sampling.backend == "vllm",
        vllm_max_model_length=policy.max_length,
        # Ratios are against the sampler's own log-probabilities, so nothing is left to correct.
        vllm_importance_sampling_correction=False,
        bf16=policy.autocast,
        use_cpu=policy.device == "cpu",
        gradient_checkpointing=recipe.model.gradient_checkpointing,
        trust_remote_code=recipe.model.trust_remote_code,
        seed=recipe.seed,
        shuffle_dataset=False,
        ignore_data_skip=True,
        logging_steps=1,
        save_strategy="no",
        report_to=recipe.output.report_to or "none",
        disable_tqdm=True,
    )


class FastSlowTrainer(SharedPrefixTrainer):
    """TRL's trainer, fed with updates."""

    def __init__(self, policy: Policy, recipe: Recipe, folder: Path, world: World) -> None:
        self.world = world
        self.save_folder = folder
        self.updates: Iterator[Update] = iter(())
        self.update: Update | None = None
        self.last_logs: dict[str, float] = {}
        super().__init__(
            model=policy.model,
            reward_funcs=_graded_elsewhere,
            args=trainer_config(recipe, policy, folder, world),
            # TRL walks over rows to count steps; what is in them is the loop's business.
            train_dataset=Dataset.from_dict({"prompt": ["-"] * (recipe.slow.problems * recipe.slow.steps)}),
            processing_class=policy.tokenizer,
            peft_config=policy.lora,
            shared_prefix=recipe.slow.shared_prefix,
        )
        self.teacher = self._make_teacher() if recipe.method == "distill" else None
        self.remove_callback(PrinterCallback)
        self.add_callback(_Listener(self))

    def follow(self, updates: Iterator[Update], checkpoint: Path | None = None) -> None:
        """Train on the updates until the recipe's steps are done, from a checkpoint where one is given."""
        self.updates = updates
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    def save(self, folder: Path) -> None:
        """Model or adapter, optimizer, scheduler and trainer state into a folder. All processes call this together."""
        self.save_folder = folder
        # Past TRL's own method, which adds a model card to the run folder.
        super(GRPOTrainer, self)._save_checkpoint(self.model, trial=None)

    def _make_teacher(self) -> Teacher:
        if self.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
            raise RecipeError(
                "method=distill keeps a copy of the trained weights, which FSDP and DeepSpeed spread over processes; run "
                "it on one GPU, or with plain data parallelism"
            )
        with self.accelerator.autocast():
            return Teacher(self.accelerator.unwrap_model(self.model))

    @staticmethod
    def flatten(folder: Path) -> None:
        """Lift what `save` wrote out of the subfolder that transformers puts it in."""
        for inner in folder.glob("checkpoint-*"):
            for item in inner.iterdir():
                item.rename(folder / item.name)
            inner.rmdir()

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.save_folder)

    def report(self, metrics: dict[str, float]) -> None:
        """Send numbers to the trackers, beside those of the update."""
        super(GRPOTrainer, self).log(metrics)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        self.update = next(self.updates)
        # From here on the step is a function of its number: shuffling into microbatches, dropout.
        torch.manual_seed(derive_seed(self.args.seed, "update", self.update.step, self.world.rank))
        return self._tensors(self.update)

    def _tensors(self, update: Update) -> dict[str, Any]:
        """This process's share of the rows, padded the way TRL pads, with reference log-probabilities."""
        device = self.accelerator.device
        share = self.args.steps_per_generation * self.world.size
        fillers = -len(update.rows) % share or (0 if update.rows else share)
        if self.shared_prefix:  # the same beginnings side by side, and so in the same process and microbatch
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
            "filled": torch.tensor((len(update.rows) + fillers) / max(len(update.rows), 1), device=device),
        }
        if self.teacher:
            read = [row.teacher_prompt if row else [pad_id] for row in rows]
            batch["teacher_ids"] = padded(read, pad_id, "left")
            batch["teacher_mask"] = mask(read, [True] * len(rows), "left")
            return batch
        if self.use_vllm or any(row.policy_step < update.step - 1 for row in update.rows):
            batch["old_per_token_logps"] = self._behaviour_logprobs(batch)
        if self.beta:
            batch["ref_per_token_logps"] = self._reference_logprobs(batch)
        return batch

    def _behaviour_logprobs(self, batch: dict[str, Any]) -> torch.Tensor:
        """What the sampler said, or, of a row that it has no number for, what the policy says now."""
        sampled = batch["sampled_logps"]
        unknown = ~sampled.isfinite().all(dim=1)
        if unknown.any():
            again = {key: value[unknown] if value.ndim else value for key, value in batch.items()}
            sampled = sampled.index_put((unknown,), self._score(self.model, again))
        return sampled

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if self.teacher:
            return self._distillation_loss(model, self.teacher, inputs)
        loss = super()._compute_loss(model, inputs)
        self._note_mismatch(inputs)
        # These count the fillers as rows, and how many there are depends on microbatch and processes.
        return loss * inputs["filled"] if self.loss_type in ("grpo", "dr_grpo") else loss

    def _distillation_loss(self, model: Any, teacher: Teacher, inputs: dict[str, Any]) -> torch.Tensor:
        with self.accelerator.autocast():
            total, kl, entropy = distillation(model, teacher, inputs, self.temperature, self.shares(model))
        sums = torch.stack([kl.sum(), entropy.sum(), torch.tensor(float(kl.numel()), device=total.device)])
        kl_sum, entropy_sum, tokens = self.accelerator.reduce(sums, reduction="sum").tolist()
        if tokens:
            self._metrics["train"]["distillation"].append(kl_sum / tokens)
            self._metrics["train"]["entropy"].append(entropy_sum / tokens)
        # The mean over all processes' tokens; accelerate averages gradients over processes.
        return total * self.accelerator.num_processes / inputs["num_items_in_batch"].clamp(min=1)

    @torch.no_grad()
    def _note_mismatch(self, inputs: dict[str, Any]) -> None:
        """How far the sampler's log-probabilities are from the trainer's, of rows that the policy in training has drawn."""
        sampled = inputs["sampled_logps"]
        known = inputs["completion_mask"].bool() & inputs["fresh"][:, None] & sampled.isfinite()
        off = (self.scored - sampled).abs()[known]
        total, count = self.accelerator.reduce(torch.stack([off.sum(), known.sum().float()]), reduction="sum").tolist()
        if count:
            self._metrics["train"]["sampler_mismatch"].append(total / count)

    def _reference_logprobs(self, batch: dict[str, Any]) -> torch.Tensor:
        """Log-probabilities under the base model: the reference model, or the policy with its adapter off."""
        if self.ref_model is not None:
            return self._score(self.ref_model, batch)
        with (
            use_adapter(self.accelerator.unwrap_model(self.model), adapter_name=None),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
        ):
            return self._score(self.model, batch)

    @torch.no_grad()
    def _score(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        """Log-probabilities of a batch's completions under a model as it is."""
        return self._get_per_token_logps_and_entropies(
            model,
            torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1),
            torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
            batch["completion_ids"].size(1),
            batch_size=self.args.per_device_train_batch_size,
        )[0]


class _Listener(TrainerCallback):
    """Keeps the numbers of the last update, and leaves the weights alone when a step has nothing to learn from."""

    def __init__(self, trainer: FastSlowTrainer) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        update = self.trainer.update
        if update is not None and not update.rows:
            # A zero gradient would still move the weights by Adam's momentum; no gradient does not.
            for parameter in self.trainer.model.parameters():
                parameter.grad = None

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs and "grad_norm" in logs:
            self.trainer.last_logs = dict(logs)
            update = self.trainer.update
            if update is not None and update.last:
                # The loop still has to record and save the last step, while the trackers are open.
                for more in self.trainer.updates:
                    raise AssertionError(f"the loop has another update, {more.step}, after its last")
                control.should_training_stop = True


def _graded_elsewhere(**_: Any) -> list[float]:
    raise AssertionError("rewards come with the rollouts")
