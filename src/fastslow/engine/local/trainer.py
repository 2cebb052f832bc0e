"""The training step: accelerate distributes, PEFT adapts, torch optimizes, and the loss is a function that is given.

The rows of an update pass through the model in micro-batches, by shared prefixes where the model supports them. How they are
cut changes memory and speed, not the result.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from accelerate.utils import DistributedType, is_peft_model, set_seed
from peft import get_peft_model
from torch import Tensor
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.functional import pad
from torch.nn.utils import get_total_norm
from torch.optim.lr_scheduler import LambdaLR
from transformers.trainer_utils import align_special_tokens
from trl.trainer import add_fused_lm_head

from fastslow.base.errors import warn
from fastslow.base.world import World, derive_seed
from fastslow.engine.base import Batch, Objective, Update
from fastslow.engine.local import fit
from fastslow.engine.local.batch import Tensors, nothing, share_of, some, tensors, unpadded
from fastslow.engine.local.distill import Teacher, distillation
from fastslow.engine.local.sampler import without_checkpointing
from fastslow.models.load import Policy, end_tokens, load_pretrained
from fastslow.prefix import completion_logprobs, why_not_train
from fastslow.recipe import Recipe, VllmServers

BETAS, WEIGHT_DECAY, EPSILON = (0.9, 0.999), 0.0, 1e-8
"""AdamW's, as in the paper and in torch."""
MAX_GRAD_NORM = 1.0
"""Gradients are clipped to this norm, as in TRL."""


class Trainer:
    max_grad_norm = MAX_GRAD_NORM

    @staticmethod
    def make_optimizer(groups: list[dict[str, Any]], learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, learning_rate, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, fused=True)

    def __init__(self, policy: Policy, recipe: Recipe, world: World, objective: Objective) -> None:
        self.recipe, self.world, self.objective = recipe, world, objective
        self.tokenizer, self.max_length, self.bf16 = policy.tokenizer, policy.max_length, policy.autocast
        self.pad_id = int(policy.tokenizer.pad_token_id)
        self.rows, self.passes = fit.cut(recipe, policy, world)
        if recipe.sampling.backend == "vllm":
            self.vllm_share = fit.vllm_share(recipe, policy)  # before the model is on the card
        self.accelerator = fit.make_accelerator(policy, recipe)
        self.device = self.accelerator.device
        self.sharded = self.accelerator.distributed_type == DistributedType.FSDP
        if self.sharded:
            fit.refuse_sharded(recipe)
        self.eos_token_ids = end_tokens(policy.model, policy.tokenizer)
        set_seed(recipe.seed)  # adapters start with random weights
        self.model: Any = policy.model
        self.model.config.get_text_config().pad_token_id = self.model.generation_config.pad_token_id = self.pad_id
        if policy.lora:
            self.model = get_peft_model(self.model, policy.lora)
            if recipe.model.gradient_checkpointing is True:
                self.model.enable_input_require_grads()
        if not self.sharded:
            self.model.to(self.device)
        self.wrapped: Any = self.model
        """The model as accelerate prepared it; until then the model itself."""
        temperature = recipe.sampling.temperature
        add_fused_lm_head(policy.model, temperature=temperature, outputs=("log_probs", "entropy"))
        measured = recipe.evaluation.divergence
        self.penalized = bool(recipe.slow.kl) and (recipe.method != "distill" or measured)
        needed = (self.penalized or measured) and not policy.lora
        self.reference = self._load_reference(temperature) if needed else None
        """The base model, where all weights are trained; otherwise it is the model with its adapter disabled."""
        config = self.model.config.get_text_config()
        mixture = hasattr(config, "output_router_logits")
        self.balance = float(getattr(config, "router_aux_loss_coef", 0.0)) if mixture else 0.0
        """The factor of a mixture's loss for unevenly used experts."""
        set_seed(recipe.seed, device_specific=True)
        self.fit: fit.Fit | None = None
        """Chooses what passes through the model at a time; None where the recipe gives a number of rows."""
        if fit.by_tokens(recipe, policy.device):
            self.fit = fit.Fit(self.model, recipe, world, bf16=self.bf16, sharded=self.sharded)
        if self.bf16:
            fit.leave_inputs_in_bf16(self.model)
        self.teacher: Teacher | None = None
        if recipe.teaches:
            with self.accelerator.autocast():
                self.teacher = Teacher(self.model)
        self.shared_prefix, self._checked = recipe.slow.shared_prefix, False
        self.optimizer: Any = None
        self.scheduler: Any = None
        self.version = 0
        """Counts changes of the weights: samplers with a copy of their own follow it."""

    def _load_reference(self, temperature: float) -> Any:
        recipe = self.recipe.model
        model, _ = load_pretrained(recipe.name, dtype=self.model.dtype, trust_remote_code=recipe.trust_remote_code)
        add_fused_lm_head(model, temperature=temperature)
        if self.sharded:
            from trl.models import prepare_fsdp

            return prepare_fsdp(model, self.accelerator)
        return self.accelerator.prepare_model(model, evaluation_mode=True)

    def prepare(self) -> None:
        """Wrap the model for its processes, and create optimizer and schedule."""
        slow = self.recipe.slow
        if self.recipe.model.gradient_checkpointing is True:
            self.model.gradient_checkpointing_enable()
        align_special_tokens(self.model, self.tokenizer)
        optimizer = self.make_optimizer(fit.parameter_groups(self.model), slow.learning_rate)
        self.wrapped, self.optimizer = self.accelerator.prepare(self.model, optimizer)
        if self.sharded:
            self.model = self.wrapped
            register_fsdp_forward_method(self.model, "generate")
        # Linear warm-up, then constant; the first step already trains.
        warmup = max(1, slow.warmup_steps)
        self.scheduler = LambdaLR(self.optimizer, lambda done: min(1.0, (done + 1) / warmup))
        self.wrapped.zero_grad()

    def step(self, update: Update) -> dict[str, float | None]:
        """Make one optimizer step; what was measured in it."""
        self.wrapped.train()
        numbers = self._accumulate(update)
        norm = self.accelerator.clip_grad_norm_(self.wrapped.parameters(), self.max_grad_norm)
        if not update.rows:
            # With a zero gradient, Adam's momentum would still change the weights; without a gradient it does not.
            for parameter in self.model.parameters():
                parameter.grad = None
        learning_rate = self.scheduler.get_last_lr()[0] * update.rate
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate  # the schedule sets it again for the next step
        self.optimizer.step()
        self.scheduler.step()
        self.wrapped.zero_grad()
        self.version += 1
        return {
            **numbers,
            "grad_norm": norm.item() if isinstance(norm, Tensor) else norm,
            "learning_rate": learning_rate,
            "largest_weight": self._largest_weight(),
        }

    def _accumulate(self, update: Update) -> dict[str, float | None]:
        """Add up the gradient over micro-batches; smaller ones after running out of GPU memory."""
        while True:
            try:
                return self._accumulate_once(update)
            except torch.OutOfMemoryError:
                # Other processes would wait for this one's part of the gradient.
                if self.fit is None or self.world.size > 1 or not self.fit.shrink():
                    raise
            # Outside the handler: there, the error still holds the activations.
            self.wrapped.zero_grad()
            torch.cuda.empty_cache()

    def _accumulate_once(self, update: Update) -> dict[str, float | None]:
        # The order of rows depends on the step number only.
        torch.manual_seed(derive_seed(self.recipe.seed, "update", update.step, self.world.rank))
        if self.fit:
            self.shares(self.wrapped)  # decides how rows are counted
            lengths = [len(row.turn.prompt_ids) + len(row.turn.completion.ids) for row in update.rows]
            self.fit.choose(max(lengths, default=1), self.optimizer)
        work = []
        for half in update.by_loss():
            passes = math.ceil(self.passes * len(half.rows) / len(update.rows)) if update.rows else self.passes
            batch = self.tensors(half, passes)
            if not self.shared_prefix:  # with it, rows that share a prefix stay together
                batch = some(batch, torch.randperm(len(batch["advantages"])))
            parts = self._parts(batch, len(batch["advantages"]) // passes)
            work.append((batch, parts, self._most(parts)))
        # A launcher may ask for gradients to be synchronized after every micro-batch.
        each = bool(self.accelerator.gradient_state.plugin_kwargs.get("sync_each_batch", False))
        left = sum(count for *_, count in work)
        sums: Counter[str] = Counter()
        inputs: Tensors = {}
        for batch, parts, count in work:
            for number in range(count):
                inputs = some(batch, parts[number]) if number < len(parts) else nothing(inputs)
                left -= 1
                with nullcontext() if each or not left else self.accelerator.no_sync(model=self.wrapped):
                    loss, found = self.loss(inputs, update, count)
                    # accelerate averages gradients over processes; the loss is a sum over them.
                    self.accelerator.backward(loss * self.world.size)
                sums.update({"loss": loss.detach(), **found})
        return self._averages(sums)

    def _averages(self, sums: Mapping[str, Any]) -> dict[str, float | None]:
        """Means over the tokens of the update with that loss, from the sums of this process; None where there are none."""
        names = sorted(sums)  # the same in all processes
        values = torch.stack([torch.as_tensor(sums[name], dtype=torch.float32, device=self.device) for name in names])
        total = dict(zip(names, self.accelerator.reduce(values, reduction="sum").tolist(), strict=True))
        loss, tokens, taught, known = (total.pop(name, 0.0) for name in ("loss", "tokens", "taught", "known"))
        mismatch = total.pop("sampler_mismatch", 0.0)
        of = {"entropy": tokens, "distillation": taught}
        means = {
            name: value / count if (count := of.get(name, tokens - taught)) else None for name, value in total.items()
        }
        return {**means, "loss": loss, **({"sampler_mismatch": mismatch / known} if known else {})}

    def loss(self, inputs: Tensors, update: Update, passes: int) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's part of the loss, and sums over its tokens of what is measured."""
        tokens = max(1, sum(len(row.turn.completion.ids) for row in update.rows))
        mask_RT = inputs["completion_mask"]
        if self.teacher and "teacher_ids" in inputs:
            with self.accelerator.autocast():
                shared, temperature = self.shares(self.wrapped), self.recipe.sampling.temperature
                total, kl, entropy = distillation(self.wrapped, self.teacher, inputs, temperature, shared)
            counts = dict.fromkeys(("tokens", "taught"), mask_RT.sum())
            return total / tokens, {"distillation": kl.sum(), "entropy": entropy.sum(), **counts}
        logprobs_RT, entropy_RT, balance = self.logprobs(self.wrapped, inputs)
        assert entropy_RT is not None, "of the policy"
        loss, found = self.objective(
            Batch(
                logprobs_RT,
                inputs.get("behaviour", logprobs_RT.detach()),
                inputs.get("reference"),
                inputs["advantages"],
                inputs["balanced"],
                mask_RT,
                tokens,
                max(1, len(update.rows)),
                self.recipe.sampling.max_tokens,
            )
        )
        if balance is not None:
            loss = loss + self.balance * balance / (passes * self.world.size)
        with torch.no_grad():
            sums = {name: (value * mask_RT).sum() for name, value in {**found, "entropy": entropy_RT}.items()}
            # How sampler and trainer differ, in rows of the current policy.
            sampled_RT = inputs["sampled"]
            known_RT = mask_RT.bool() & inputs["fresh"][:, None] & sampled_RT.isfinite()
            gap = (logprobs_RT - sampled_RT).abs()[known_RT].sum()
        return loss, {**sums, "tokens": mask_RT.sum(), "sampler_mismatch": gap, "known": known_RT.sum()}

    def logprobs(self, model: Any, inputs: Tensors) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probability and entropy of each completion token, and a mixture's imbalance where that is trained on. The
        reference model says no entropy."""
        width = inputs["completion_ids"].size(1)
        if self.shares(model) and not self.balance:
            with self.accelerator.autocast():
                found, entropy = completion_logprobs(model, *unpadded(inputs, "prompt", "completion"))
            right = (0, width - found.shape[1])
            return pad(found, right), None if entropy is None else pad(entropy, right), None
        ids, mask = (
            torch.cat([inputs[f"prompt_{kind}"], inputs[f"completion_{kind}"]], dim=1) for kind in ("ids", "mask")
        )
        labels = ids.masked_fill(mask == 0, -100)
        labels[:, :-width] = -100
        balanced = {"output_router_logits": True} if self.balance else {}
        with self.accelerator.autocast():
            outputs = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True, **balanced)
        entropy = None if outputs.entropy is None else outputs.entropy[:, -width:]
        return outputs.log_probs[:, -width:], entropy, outputs.aux_loss

    def shares(self, model: Any) -> bool:
        """Whether the model supports shared prefixes; checked once, on the first model scored."""
        if self.shared_prefix and not self._checked:
            self._checked = True
            with self.accelerator.autocast():
                reason = why_not_train(model)
            if reason:
                self.shared_prefix = False
                warn(f"training falls back to padded batches without shared prefixes because {reason}")
        return self.shared_prefix

    def tensors(self, update: Update, passes: int | None = None) -> Tensors:
        """This process's share of the rows, filled up for so many micro-batches, with log-probabilities under the policies
        that sampled them, where those differ from the current one, and under the base model."""
        order = None if not self.shared_prefix else "row" if self.fit else "prompt"
        rows = share_of(update, self.world, passes or self.passes, sorted_by=order)
        # Updates without teacher prompts have the policy loss, also in an engine with a teacher.
        distilled = self.teacher is not None and all(row.teacher_prompt for row in update.rows)
        batch = tensors(rows, update.step, self.pad_id, self.device, teacher=distilled)
        if distilled:
            return batch
        backend = self.recipe.sampling.backend
        by_vllm = backend == "vllm" or isinstance(backend, VllmServers)
        if by_vllm or any(row.helped or row.policy_step < update.step - 1 for row in update.rows):
            batch["behaviour"] = self._behaviour(batch)
        if self.penalized:
            with self.base() as model:
                batch["reference"] = self.score(model, batch)
        return batch

    def _behaviour(self, batch: Tensors) -> Tensor:
        """The sampler's log-probabilities; for rows where some are missing, the current policy's."""
        sampled = batch["sampled"]
        unknown = ~sampled.isfinite().all(dim=1)
        if unknown.any():
            sampled = sampled.index_put((unknown,), self.score(self.model, some(batch, unknown), everywhere=False))
        return sampled

    @contextmanager
    def base(self) -> Iterator[Any]:
        """The base model: the reference model, or the policy with its adapter disabled."""
        if self.reference is not None:
            yield self.reference
            return
        model = self.accelerator.unwrap_model(self.model)
        assert is_peft_model(model), "the recipe check requires a reference model"
        with model.disable_adapter(), without_checkpointing(model):
            yield model

    @torch.no_grad()
    def score(self, model: Any, batch: Tensors, *, everywhere: bool = True) -> Tensor:
        """Log-probabilities of a batch's completions under a model; `everywhere`: all processes score a batch now."""
        parts = self._parts(batch, self.rows)
        found = []
        for number in range(self._most(parts) if everywhere else len(parts)):
            part = parts[number] if number < len(parts) else slice(1)
            found.append(self.logprobs(model, some(batch, part))[0])
        return torch.cat(found[: len(parts)])

    def _parts(self, batch: Tensors, rows: int) -> list[slice]:
        """Rows of a batch that pass through the model together: as many tokens as fit, or `rows` rows."""
        count = len(batch["advantages"])
        if self.fit is None:
            return [slice(start, start + rows) for start in range(0, count, rows)]
        width = None if self.shared_prefix else batch["prompt_ids"].size(1) + batch["completion_ids"].size(1)
        whole = [np.concatenate(pair) for pair in zip(*unpadded(batch, "prompt", "completion"), strict=True)]
        return self.fit.cut(whole, width)

    def _most(self, parts: Sequence[slice]) -> int:
        """Passes that every process makes, as many as one of them has parts: sharded weights are gathered in each."""
        return self.world.largest(len(parts)) if self.fit else len(parts)

    def _largest_weight(self) -> float:
        """The largest absolute value of a trained weight; NaN or infinity if one is."""
        weights = [weight.detach() for weight in self.model.parameters() if weight.requires_grad and weight.numel()]
        largest = get_total_norm(weights, math.inf)
        if isinstance(largest, DTensor):
            largest = largest.full_tensor()
        return self.accelerator.gather(largest.to(self.device)).max().item()
