"""FST-distill: what the contexts make the model do is trained into the weights, so that it does it without them.

The student is the policy under the seed text. The teacher is the same model under an evolved context, with the weights it
had at the cycle's start. The student writes; at each of its tokens the loss is the reverse KL(student ‖ teacher) over the
whole vocabulary, both at the sampling temperature, with the tokens that were written taken as given. The contexts of the
pool teach in equal shares of a group. Rewards are recorded and not used: what reaches the weights, reaches them through the
contexts. There is no penalty for leaving the base model, and no group is left out for its rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint

from fastslow.engine.local.hidden import Head, check_halves, chunk_tokens, output_head, written_states
from fastslow.engine.local.shared_prefix import unpadded
from fastslow.prefix.tree import Ids
from fastslow.recipe import SlowRecipe
from fastslow.records import Rollout
from fastslow.slow.advantages import informative, prompt_mean_scale
from fastslow.slow.update import Row, Update

FILE = "teacher.safetensors"


def build_distillation(
    rollouts: Sequence[Rollout],
    prompts: Sequence[Sequence[Sequence[int]] | None],
    slow: SlowRecipe,
    step: int,
    last: bool = False,
) -> Update:
    """Rows for one step from the student's rollouts, problem by problem, and the prompts their teachers read, turn by turn.

    Where a rollout has no such prompts it has no teacher, and is left out.
    """
    shape = (-1, slow.group)
    rewards_PG = np.array([rollout.score for rollout in rollouts], dtype=np.float64).reshape(shape)
    tokens_PG = np.array([rollout.completion_tokens for rollout in rollouts]).reshape(shape)
    kept_PG = np.array([prompt is not None for prompt in prompts]).reshape(shape) & (tokens_PG > 0)
    groups_PG = np.broadcast_to(np.arange(len(rewards_PG))[:, None], rewards_PG.shape)
    weights_PG = prompt_mean_scale(tokens_PG, kept_PG) if slow.aggregation == "problem" else np.ones(rewards_PG.shape)
    rows = [
        Row(turn, float(weight), rollout.policy_step, tuple(prompt))
        for rollout, asked, weight, kept in zip(rollouts, prompts, weights_PG.flat, kept_PG.flat, strict=True)
        if kept and asked is not None
        for turn, prompt in zip(rollout.turns, asked, strict=True)
    ]
    varied_P = informative(rewards_PG, groups_PG).any(axis=1)
    return Update(step, rows, 1 - float(varied_P.mean()), last)


def reverse_kl(student_NV: torch.Tensor, teacher_NV: torch.Tensor) -> torch.Tensor:
    """KL(student ‖ teacher) of each token from the logits of both."""
    log_p, log_q = torch.log_softmax(student_NV, dim=-1), torch.log_softmax(teacher_NV, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def chunked_reverse_kl(
    student_NH: torch.Tensor, teacher_NH: torch.Tensor, student: Head, teacher: Head, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The reverse KL of each token and the student's entropy there, from hidden states.

    Logits are made for `chunk` tokens at a time and made again in the backward pass, so that neither pass holds more.
    """

    def of_chunk(student_hidden: torch.Tensor, teacher_hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = student(student_hidden)
        with torch.no_grad():
            taught = teacher(teacher_hidden)
            entropy = torch.distributions.Categorical(logits=logits, validate_args=False).entropy()
        return reverse_kl(logits, taught), entropy

    parts = [
        checkpoint(of_chunk, student_hidden, teacher_hidden, use_reentrant=False)
        for student_hidden, teacher_hidden in zip(student_NH.split(chunk), teacher_NH.split(chunk), strict=True)
    ]
    return torch.cat([kl for kl, _ in parts]), torch.cat([entropy for _, entropy in parts])


class Teacher:
    """The policy with the weights of one moment: a copy of what is trained, all weights or the adapter, and no more."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.copies: dict[str, torch.Tensor] = {}
        check_halves(model)

    @torch.no_grad()
    def freeze(self) -> None:
        """Take the weights as they are now, in place of those from before."""
        for name, parameter in self._trained().items():
            if name in self.copies:
                self.copies[name].copy_(parameter)
            else:
                self.copies[name] = parameter.detach().clone()

    def save(self, folder: Path) -> None:
        save_file({name: copy.contiguous() for name, copy in self.copies.items()}, folder / FILE)

    def load(self, folder: Path) -> None:
        """What `save` wrote; where there is nothing, the next cycle freezes anew."""
        if (folder / FILE).exists():
            device = next(self.model.parameters()).device
            self.copies = load_file(folder / FILE, device=str(device))

    @torch.no_grad()
    def hidden(self, prompts: Sequence[Ids], written: Sequence[Ids], shared: bool) -> torch.Tensor:
        training = self.model.training
        self.model.eval()
        try:
            return written_states(self.model, prompts, written, shared=shared, frozen=self.copies)
        finally:
            self.model.train(training)

    def head(self, temperature: float) -> Head:
        trained = self._trained()
        frozen: Mapping[nn.Parameter, torch.Tensor] = {trained[name]: copy for name, copy in self.copies.items()}
        return output_head(self.model, frozen, temperature)

    def _trained(self) -> dict[str, nn.Parameter]:
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}


def distillation(
    model: Any, teacher: Teacher, batch: Mapping[str, torch.Tensor], temperature: float, shared: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of a microbatch: the sum over written tokens of weight × KL, and each token's KL and entropy without gradients."""
    prompts, read, written = (
        unpadded(batch[f"{part}_ids"], batch[f"{part}_mask"]) for part in ("prompt", "teacher", "completion")
    )
    taught = teacher.hidden(read, written, shared)
    hidden = written_states(teacher.model, prompts, written, shared=shared, wrapper=model)
    if not len(hidden):
        nothing = taught.new_zeros(0)
        return hidden.sum() * 0.0, nothing, nothing
    head = output_head(teacher.model, temperature=temperature)
    vocabulary = teacher.model.get_input_embeddings().weight.size(0)
    kl, entropy = chunked_reverse_kl(hidden, taught, head, teacher.head(temperature), chunk_tokens(vocabulary))
    weights = batch["advantages"].repeat_interleave(batch["completion_mask"].sum(dim=1))
    return (kl * weights).sum(), kl.detach(), entropy
