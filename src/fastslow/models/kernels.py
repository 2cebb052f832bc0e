"""Fused kernels for norms, rotary positions and SwiGLU: fewer small kernels in sampling and in the update, the same model.

Norms and SwiGLU are Liger's (package liger-kernel). Rotary positions are ours (`rotary`), because Liger's kernel is compiled
again for each number of rows, and that changes all the time in sampling. Modules of the loaded model are changed, no classes.
Rotary positions are a function of the model's family, which is replaced for all its models. Tensors that are not on a CUDA
GPU are computed as before. Adapters are added afterwards.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import MethodType
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Models whose norms, positions and MLP are Llama's."""


def kernels_installed() -> bool:
    return find_spec("liger_kernel") is not None and find_spec("triton") is not None


def why_no_kernels(device: str, model: PreTrainedModel) -> str | None:
    if device != "cuda":
        return "no CUDA GPU is used"
    if not kernels_installed():
        return "the package liger-kernel is not installed"
    # Of transformers itself: code that a model brings along may compute anything.
    package, _, family = type(model).__module__.rpartition(".modeling_")
    if family not in FAMILIES or package != f"transformers.models.{family}":
        return f"none for {type(model).__name__}"
    if model.config.get_text_config().hidden_act not in ("silu", "swish"):
        return f"none for the activation {model.config.get_text_config().hidden_act}"
    return None


def use_kernels(model: PreTrainedModel) -> None:
    """Let a model of a known family compute with fused kernels where it is on a CUDA GPU."""
    family = sys.modules[type(model).__module__]
    for module in model.modules():
        name = type(module).__name__
        if type(module).__module__ != family.__name__:
            continue
        if name.endswith("RMSNorm"):
            module.forward = MethodType(_norm, module)
        elif name.endswith("MLP"):
            module.forward = MethodType(_swiglu, module)
    _replace_rotary(family)


def _norm(self: Any, hidden_states: Tensor) -> Tensor:
    if not hidden_states.is_cuda:
        return type(self).forward(self, hidden_states)
    from liger_kernel.ops import LigerRMSNormFunction

    offset, casting, in_place = 0.0, "llama", False
    return LigerRMSNormFunction.apply(hidden_states, self.weight, self.variance_epsilon, offset, casting, in_place)


def _swiglu(self: Any, x: Tensor) -> Tensor:
    if not x.is_cuda:
        return type(self).forward(self, x)
    from liger_kernel.ops import LigerSiLUMulFunction

    return self.down_proj(LigerSiLUMulFunction.apply(self.gate_proj(x), self.up_proj(x)))


def _replace_rotary(family: Any) -> None:
    original = family.apply_rotary_pos_emb
    if hasattr(original, "original"):
        return

    def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
        if not q.is_cuda or unsqueeze_dim != 1 or cos.dim() != 3 or cos.shape[-1] != q.shape[-1]:
            return original(q, k, cos, sin, unsqueeze_dim=unsqueeze_dim)
        from fastslow.models.rotary import rotated

        return rotated(q, k, cos, sin)

    rotate.original = original  # type: ignore[attr-defined]
    family.apply_rotary_pos_emb = rotate
