"""The memory model against what torch holds on a CPU, and against what was measured on a GPU."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3Config
from transformers.integrations.sdpa_attention import repeat_kv
from trl.trainer.utils import add_fused_lm_head

from fastslow.models.memory import (
    ENOUGH_TOKENS,
    FEW_TOKENS,
    GIB,
    MOST_TOKENS,
    USABLE,
    Footprint,
    Shape,
    answers_that_fit,
    rounded_down,
)
from fastslow.models.tokenizer import resolve
from fastslow.prefix import completion_logprobs, tree_attention
from fastslow.prefix.tree import cut_by_tokens

RANK = 8
SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 96,
    "intermediate_size": 288,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
}
QWEN3_8B = Shape(36, 4096, 12288, 32, 8, 128, 151936, tied=False)
EIGHT = Footprint(QWEN3_8B, QWEN3_8B.weights, QWEN3_8B.adapter_weights(32), 32, bf16=True)
CARD = int(79.1 * GIB)
"""What a card of 80 GB has."""


class Held(TorchDispatchMode):
    """Bytes of the tensors that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.sizes = 0, {}  # type: ignore[var-annotated]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(found):
            if isinstance(tensor, torch.Tensor) and (key := tensor.untyped_storage()._cdata) not in self.sizes:
                storage = tensor.untyped_storage()
                self.sizes[key] = storage.nbytes()
                self.bytes += storage.nbytes()
                weakref.finalize(storage, self._free, key)
        return found

    def _free(self, key: int) -> None:
        self.bytes -= self.sizes.pop(key, 0)


def fused(query: Any, key: Any, value: Any, mask: Any, scale: Any, dropout: Any) -> torch.Tensor:
    """Attention that keeps what the GPU's kernel keeps: queries, repeated keys and values, its result."""
    repeats = query.shape[1] // key.shape[1]
    states = (query.contiguous(), *(repeat_kv(each, repeats).contiguous() for each in (key, value)))
    out = functional.scaled_dot_product_attention(*states, is_causal=True, scale=scale)
    return out.transpose(1, 2).contiguous()


def held(layers: int, tokens: int, *, lora: bool, bf16: bool, checkpointing: bool) -> int:
    """Bytes that torch holds between the forward and the backward pass of one row."""
    torch.manual_seed(0)
    config = Qwen3Config(**SMALL, num_hidden_layers=layers)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if lora and bf16 else torch.float32)
    add_fused_lm_head(model)
    if lora:
        model = get_peft_model(model, LoraConfig(r=RANK, target_modules="all-linear", task_type="CAUSAL_LM"))
        for module in model.modules():
            if isinstance(module, LoraLayer):
                module.cast_input_dtype_enabled = False  # as the trainer does
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    ids = torch.randint(SMALL["vocab_size"], (tokens,)).tolist()
    with Held() as counted, torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logprobs, _ = completion_logprobs(model, [ids[:4]], [ids[4:]])
        assert logprobs.requires_grad
        return counted.bytes


@pytest.mark.parametrize("bf16", [True, False])
@pytest.mark.parametrize("lora", [True, False])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_are_the_bytes_that_torch_holds(
    checkpointing: bool, lora: bool, bf16: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_attention, "_attend_gathered", fused)
    how = {"lora": lora, "bf16": bf16, "checkpointing": checkpointing}
    few, many = 64, 192
    of_layers = [held(3, tokens, **how) - held(1, tokens, **how) for tokens in (few, many)]
    found = (of_layers[1] - of_layers[0]) / (many - few) / 2
    shape = Shape.of(Qwen3Config(**SMALL, num_hidden_layers=1))
    assert shape is not None
    needed = Footprint(shape, shape.weights, shape.weights, RANK if lora else None, bf16)
    if checkpointing:
        assert found == (2 if lora and bf16 else 4) * shape.hidden
    else:
        assert found == needed.layer_bytes()


def test_weights_are_counted() -> None:
    for name in ("nano",):
        config = AutoConfig.from_pretrained(resolve(name))
        model, shape = AutoModelForCausalLM.from_config(config), Shape.of(config)
        assert shape is not None
        assert shape.weights == pytest.approx(model.num_parameters(), rel=0.01)
        adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        assert shape.adapter_weights(4) == adapted.get_nb_trainable_parameters()[0]
    assert QWEN3_8B.weights == pytest.approx(8.19e9, rel=1e-3)


def microbatches(seed: int) -> list[int]:
    """Tokens of the micro-batches of 16 rows that were measured: 16 problems × 8 rollouts, 4 contexts of 1,000, problems of
    about 200, answers of 345 on average, at most 1,024."""
    draw = torch.Generator().manual_seed(seed)
    numbers = iter(range(10**9))

    def text(count: int) -> list[int]:
        return [next(numbers) for _ in range(count)]

    contexts, problems = [text(1008) for _ in range(4)], [text(200) for _ in range(16)]
    answers = torch.empty(128).exponential_(1 / 345, generator=draw).clamp(1, 1024).int().tolist()
    rows = [context + problem for context in contexts for problem in problems for _ in range(2)]
    rows = [row + text(answer) for row, answer in zip(rows, answers, strict=True)]
    return [sum(len(row) for row in rows[i : i + 16]) - 15 * 1008 - 8 * 200 for i in range(0, 128, 16)]


def test_what_was_measured_on_a_gpu() -> None:
    """8B, LoRA of rank 32, micro-batches of 16 rows on one H200: a peak of 94 GiB without checkpointing, before adapters
    took their inputs in bf16, which kept 6 more bytes a hidden feature."""
    peaks = [max(microbatches(seed)) for seed in range(20)]
    tokens = sum(peaks) / len(peaks)
    before = tokens * 6 * QWEN3_8B.hidden * QWEN3_8B.layers
    assert (EIGHT.update_bytes(round(tokens), False) + before) / GIB == pytest.approx(94, rel=0.1)


def test_eight_billion_weights_with_an_adapter_fit_a_card_of_80_gb() -> None:
    """Contexts of 2,000 tokens, answers of 4,096, without any setting."""
    free = CARD - EIGHT.loaded - EIGHT.gradients - EIGHT.moments
    tokens, checkpointing = EIGHT.microbatch(free, 2000 + 200 + 4096, None)
    assert checkpointing
    assert tokens == MOST_TOKENS
    assert EIGHT.update_bytes(tokens, checkpointing) < USABLE * CARD
    free = CARD - EIGHT.loaded - EIGHT.moments - 2 * QWEN3_8B.linear_weights
    rows, answers = answers_that_fit(QWEN3_8B, 2, free, 8 * 2000, 200, 128, 4096)
    assert rows == 128
    assert 128 * 1024 < answers < 128 * 4096  # few answers are as long as they may be
    assert EIGHT.sampling_bytes(rows, 8 * 2000 + 128 * 200, answers) < CARD
    rows, answers = answers_that_fit(QWEN3_8B, 2, free // 4, 8 * 2000, 200, 128, 4096)
    assert 1 < rows < 128
    assert rows * FEW_TOKENS <= answers < rows * 4096
    assert answers_that_fit(QWEN3_8B, 2, 2**30, 8 * 2000, 200, 128, 4096) == (1, 4096)  # one row is always tried
    assert answers_that_fit(QWEN3_8B, 2, free, 0, 200, 16, 64) == (16, 16 * 64)
    share = EIGHT.vllm_share(CARD, CARD, 128, 4096)
    assert 0.3 < share < 0.6
    assert share * CARD + EIGHT.update_bytes(ENOUGH_TOKENS, True) < CARD
    beside_others = EIGHT.vllm_share(2 * CARD, CARD, 128, 4096)
    assert beside_others == pytest.approx(share / 2, abs=0.006)  # the same bytes of a card whose other half is taken


def test_activations_are_kept_where_they_fit() -> None:
    free = 140 * GIB - EIGHT.loaded - EIGHT.gradients - EIGHT.moments
    assert EIGHT.microbatch(free, 2000, None) == (12288, False)
    assert EIGHT.microbatch(free, 7000, None) == (MOST_TOKENS, True)  # two of the longest rows would not fit
    assert EIGHT.microbatch(free, 7000, False) == (12288, False)  # as wished
    small = Shape(24, 896, 4864, 14, 2, 64, 151936, tied=True)
    full = Footprint(small, small.weights, small.weights, None, bf16=True, reference=True)
    assert full.microbatch(60 * GIB, 2000, None) == (24576, False)


def test_a_little_less_memory_changes_nothing() -> None:
    assert [rounded_down(number) for number in (0, 1, 2, 3, 5, 6, 7, 8, 11, 12, 17)] == [
        1,
        1,
        2,
        3,
        4,
        6,
        6,
        8,
        8,
        12,
        16,
    ]


def test_rows_are_cut_by_tokens_that_neighbours_share() -> None:
    rows = [[1, 2, 3], [1, 2, 4], [1, 2, 5], [6], [6, 7, 7, 7, 7, 7, 7], [8]]
    assert cut_by_tokens(rows, 4) == [slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 6)]
    assert cut_by_tokens(rows, 100) == [slice(0, 6)]
    assert cut_by_tokens(rows, 1) == [slice(index, index + 1) for index in range(6)]


def test_unusual_models_have_no_shape() -> None:
    class Other:
        def get_text_config(self, decoder: bool) -> Other:
            return self

    assert Shape.of(Other()) is None


def test_a_model_with_mlps_of_several_widths_has_no_shape() -> None:
    config = AutoConfig.for_model("qwen3")
    assert Shape.of(config) is not None
    config.__dict__["intermediate_size"] = [1024] * config.num_hidden_layers
    assert Shape.of(config) is None
