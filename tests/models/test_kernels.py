"""Fused kernels: where they are used, that they change nothing elsewhere, and what they compute."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from prefix_helpers import MODELS, make
from transformers import PreTrainedModel
from transformers.models.qwen3 import modeling_qwen3

from fastslow.launch import doctor
from fastslow.models import kernels
from fastslow.models.kernels import use_kernels, why_no_kernels

IDS = torch.tensor([[1, 5, 3, 7, 2], [4, 4, 9, 1, 3]])
GPU = torch.cuda.is_available() and kernels.kernels_installed()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "kernels_installed", lambda: True)
    monkeypatch.setattr(doctor, "kernels_installed", lambda: True)


@pytest.fixture(autouse=True)
def families() -> Iterator[None]:
    """Puts the function of rotary positions back."""
    own = modeling_qwen3.apply_rotary_pos_emb
    yield
    modeling_qwen3.apply_rotary_pos_emb = own


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("device", "model", "why"),
    [
        ("cuda", "qwen3", None),
        ("cuda", "llama", None),
        ("cuda", "gemma3, a sliding layer", "none for Gemma3ForCausalLM"),
        ("cpu", "qwen3", "no CUDA GPU is used"),
    ],
)
def test_they_are_used_where_they_can_be(device: str, model: str, why: str | None) -> None:
    assert why_no_kernels(device, MODELS[model]()) == why


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "kernels_installed", lambda: False)
    assert why_no_kernels("cuda", MODELS["qwen3"]()) == "the package liger-kernel is not installed"


@pytest.mark.usefixtures("installed")
def test_doctor_says_it() -> None:
    assert doctor._kernels("cuda") == "fused for llama, mistral, qwen2, qwen3, none for others"
    assert doctor._kernels("cpu") == "none: no CUDA GPU is used"


def results(model: torch.nn.Module, device: str = "cpu") -> list[torch.Tensor]:
    """Logits, and the gradients of all trained weights."""
    logits = model(input_ids=IDS.to(device)).logits
    torch.log_softmax(logits.float(), -1)[..., 3].sum().backward()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    return [logits.detach().float(), *(weight.grad.float() for weight in trained)]  # type: ignore[union-attr]


def adapted(model: PreTrainedModel) -> torch.nn.Module:
    torch.manual_seed(1)
    return get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))


def checkpointed(model: PreTrainedModel) -> torch.nn.Module:
    model.train()
    model.gradient_checkpointing_enable()
    return model


def fused(model: PreTrainedModel) -> PreTrainedModel:
    use_kernels(model)
    return model


@pytest.mark.parametrize("around", [lambda model: model, adapted, checkpointed])
def test_on_a_cpu_nothing_changes(around: Any) -> None:
    expected = around(make("qwen3"))
    found = around(fused(make("qwen3")))
    torch.testing.assert_close(results(found), results(expected), atol=0, rtol=0)
    assert list(found.state_dict()) == list(expected.state_dict())


def test_the_three_parts_are_replaced_once_and_no_class(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    own = modeling_qwen3.apply_rotary_pos_emb
    monkeypatch.setattr(modeling_qwen3, "apply_rotary_pos_emb", lambda *a, **k: calls.append(0) or own(*a, **k))
    model = fused(fused(make("qwen3")))
    replaced = {type(module).__name__ for module in model.modules() if "forward" in vars(module)}
    assert {"Qwen3RMSNorm", "Qwen3MLP"} <= replaced
    assert not any("Attention" in name or "Layer" in name for name in replaced)
    model(input_ids=IDS)
    assert len(calls) == model.config.num_hidden_layers, "transformers calls the replaced function, once a layer"
    assert not any("forward" in vars(module) for module in MODELS["qwen3"]().modules())


ROTATION = """
import torch
from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb
from fastslow.models.rotary import rotated
device = "cuda" if torch.cuda.is_available() else "cpu"
for batch, cosines, heads, tokens, features in [(3, 3, 4, 1, 16), (1, 1, 5, 7, 24), (2, 1, 3, 5, 8)]:
    angles = torch.randn(cosines, tokens, features // 2, device=device).repeat(1, 1, 2)
    cos, sin = angles.cos() * 1.5, angles.sin() * 1.5
    states = [torch.randn(batch, tokens, count, features, device=device).transpose(1, 2) for count in (heads, 2)]
    found, expected = ([state.clone().requires_grad_() for state in states] for _ in range(2))
    for turn, given in ((rotated, found), (apply_rotary_pos_emb, expected)):
        given += turn(*given, cos, sin)
        weighted = [out * torch.linspace(-1, 2, out.numel(), device=device).view(out.shape) for out in given[2:]]
        (weighted[0].sum() + weighted[1].sum()).backward()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        if one.is_leaf:
            torch.testing.assert_close(one.grad, other.grad)
"""


@pytest.mark.skipif(not find_spec("triton"), reason="needs Triton")
def test_rotation_is_that_of_transformers() -> None:
    """In a process of its own: without a GPU, Triton's interpreter must be chosen before its first import."""
    chosen = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", ROTATION], check=True, env={**os.environ, **chosen})


@pytest.mark.skipif(not GPU, reason="needs a GPU and liger-kernel")
@pytest.mark.parametrize("around", [lambda model: model, adapted, checkpointed])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "mistral, sliding"])
def test_on_a_gpu_results_are_the_same_to_rounding(name: str, around: Any) -> None:
    expected = results(around(make(name).cuda()), "cuda")
    found = results(around(fused(make(name).cuda())), "cuda")
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4 * float(other.abs().max() + 1), rtol=1e-4)
