"""The loss and the teacher of FST-distill (slow/update.py describes the method)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint

from fastslow.engine.local.batch import unpadded
from fastslow.engine.local.hidden import Head, check_halves, chunk_tokens, output_head, written_states
from fastslow.engine.local.sampler import evaluating
from fastslow.prefix.tree import Ids

FILE = "teacher.safetensors"


def reverse_kl(student_NV: torch.Tensor, teacher_NV: torch.Tensor) -> torch.Tensor:
    """KL(student ‖ teacher) of each token from logits."""
    log_p, log_q = torch.log_softmax(student_NV, dim=-1), torch.log_softmax(teacher_NV, dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def chunked_reverse_kl(
    student_NH: torch.Tensor, teacher_NH: torch.Tensor, student: Head, teacher: Head, chunk: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The reverse KL of each token and the student's entropy there, from hidden states.

    Logits are computed for `chunk` tokens at a time and recomputed in the backward pass, to save memory.
    """

    def of_chunk(student_hidden: torch.Tensor, teacher_hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = student(student_hidden)
        with torch.no_grad():
            teacher_logits = teacher(teacher_hidden)
            entropy = torch.distributions.Categorical(logits=logits, validate_args=False).entropy()
        return reverse_kl(logits, teacher_logits), entropy

    parts = [
        checkpoint(of_chunk, student_hidden, teacher_hidden, use_reentrant=False)
        for student_hidden, teacher_hidden in zip(student_NH.split(chunk), teacher_NH.split(chunk), strict=True)
    ]
    return torch.cat([kl for kl, _ in parts]), torch.cat([entropy for _, entropy in parts])


class Teacher:
    """The policy with frozen weights: holds a copy of the trainable ones only, all weights or the adapter."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.copies: dict[str, torch.Tensor] = {}
        check_halves(model)

    @torch.no_grad()
    def freeze(self) -> None:
        for name, parameter in self._trained().items():
            if name in self.copies:
                self.copies[name].copy_(parameter)
            else:
                self.copies[name] = parameter.detach().clone()

    def save(self, folder: Path) -> None:
        save_file({name: copy.contiguous() for name, copy in self.copies.items()}, folder / FILE)

    def load(self, folder: Path) -> None:
        """Read what `save` wrote; if there is no file, the next cycle calls `freeze`."""
        if (folder / FILE).exists():
            device = next(self.model.parameters()).device
            self.copies = load_file(folder / FILE, device=str(device))

    @torch.no_grad()
    def hidden(self, prompts: Sequence[Ids], written: Sequence[Ids], shared: bool) -> torch.Tensor:
        with evaluating(self.model):
            return written_states(self.model, prompts, written, shared=shared, frozen=self.copies)

    def head(self, temperature: float) -> Head:
        trained = self._trained()
        frozen: Mapping[nn.Parameter, torch.Tensor] = {trained[name]: copy for name, copy in self.copies.items()}
        return output_head(self.model, frozen, temperature)

    def _trained(self) -> dict[str, nn.Parameter]:
        return {name: value for name, value in self.model.named_parameters() if value.requires_grad}


def distillation(
    model: Any, teacher: Teacher, batch: dict[str, torch.Tensor], temperature: float, shared: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For a microbatch: the sum over completion tokens of weight × KL, and each token's KL and entropy without gradients."""
    prompts, read, written = unpadded(batch, "prompt", "teacher", "completion")
    teacher_hidden = teacher.hidden(read, written, shared)
    hidden = written_states(teacher.model, prompts, written, shared=shared, wrapper=model)
    if not len(hidden):
        empty = teacher_hidden.new_zeros(0)
        return hidden.sum() * 0.0, empty, empty
    head = output_head(teacher.model, temperature=temperature)
    vocabulary = teacher.model.get_input_embeddings().weight.size(0)
    kl, entropy = chunked_reverse_kl(hidden, teacher_hidden, head, teacher.head(temperature), chunk_tokens(vocabulary))
    weights = batch["advantages"].repeat_interleave(batch["completion_mask"].sum(dim=1))
    return (kl * weights).sum(), kl.detach(), entropy
