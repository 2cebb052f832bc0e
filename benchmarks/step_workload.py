"""What a step of the benchmark is made of: a model, prompts of known lengths, and what the device can do at best."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from benchmarks.step_lengths import draw_lengths
from fastslow.models.load import resolve
from fastslow.prefix.tree import prompt_tree

SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-8b": {
        "model_type": "qwen3",
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": False,
    },
    "qwen2.5-0.5b": {
        "model_type": "qwen2",
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "tiny": {
        "model_type": "qwen3",
        "head_dim": 8,
        "vocab_size": 300,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    },
}
"""Models that need no download: their weights are random."""
WORDS = 20_000
"""Tokens that prompts are made of, at most."""
TEMPLATE = 8
"""Tokens that all prompts begin with alike, as a chat template has them."""


def prepare_model(name: str, work: Path, *, with_weights: bool) -> str:
    """What to load: the folder or hub id of a model, or a folder with the config of a known shape. It has weights if they are
    read from there: by vLLM, whose first weights the trainer's replace, and where all weights are trained."""
    if name not in SHAPES:
        return resolve(name)
    folder = work / name
    if with_weights:
        random_model(name, "cuda" if torch.cuda.is_available() else "cpu", torch.bfloat16).save_pretrained(folder)
    else:
        config_of(name).save_pretrained(folder)
    words_as_tokens(SHAPES[name]["vocab_size"]).save_pretrained(folder)
    return str(folder)


def config_of(shape: str) -> Any:
    sizes = dict(SHAPES[shape])
    return AutoConfig.for_model(sizes.pop("model_type"), **sizes, use_cache=True)


def random_model(shape: str, device: str, dtype: torch.dtype) -> Any:
    """Random weights, made on the device."""
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config_of(shape), dtype=dtype)


def count_weights(model: str) -> int:
    """Of a folder or hub id, from its config alone."""
    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    return sum(parameter.numel() for parameter in made.parameters())


def words_as_tokens(vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer in which `t17` is token 17: texts then have exactly the tokens they are made to have."""
    words = {f"t{number}": number for number in range(min(WORDS, vocabulary))}
    backend = Tokenizer(WordLevel(words, unk_token="t0"))
    backend.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="t0", unk_token="t0", eos_token="t1", padding_side="left"
    )


@dataclass(frozen=True)
class Workload:
    """Rollouts of a step: `problems` × `group`, as many under each of `contexts` contexts, at most `tokens` long."""

    problems: int
    group: int
    contexts: int
    tokens: int
    problem_tokens: int
    microbatch: int
    vocabulary: int
    even: bool = False
    """All problems equally long, so that stock TRL has nothing to pad."""
    mean_tokens: int | None = None
    """Answers end at random, and have so many tokens on average; without it, all have `tokens`."""

    @property
    def rollouts(self) -> int:
        return self.problems * self.group

    def lengths(self, seed: int) -> list[int]:
        """Tokens of the answer to each prompt."""
        return draw_lengths(self.rollouts, self.mean_tokens, self.tokens, seed)

    def prompts(self, length: int, seed: int) -> list[list[int]]:
        """One prompt for every rollout, problem by problem: a template, a context of so many tokens, a problem. Contexts do
        not depend on the seed: within a cycle they are the same in every step."""
        draw = torch.Generator()

        def text(count: int) -> list[int]:
            return torch.randint(2, min(WORDS, self.vocabulary), (count,), generator=draw).tolist()

        draw.manual_seed(length)
        template, contexts = text(TEMPLATE), [text(length) for _ in range(self.contexts)]
        draw.manual_seed(10_000 + seed)
        # Problems differ in length by up to a quarter either way.
        quarter = 0 if self.even else self.problem_tokens // 4
        problems = [text(self.problem_tokens - quarter + i % (2 * quarter + 1)) for i in range(self.problems)]
        each = self.group // self.contexts
        return [template + context + problem for problem in problems for context in contexts for _ in range(each)]


@dataclass(frozen=True)
class LeastWork:
    """What no implementation can do without: every context and problem once, every weight read once a decoding step."""

    tokens: int
    """Distinct tokens of a step, that is of its prompts as a tree and of all completions."""
    weights: int
    width: int
    """Bytes of a weight as it is computed with."""
    steps: int
    lora: bool
    """Whether the weights are frozen: they then have no gradients, and the optimizer reads next to nothing."""

    @classmethod
    def of(cls, prompts: list[list[int]], lengths: list[int], weights: int, width: int, lora: bool) -> LeastWork:
        tree = prompt_tree(prompts)
        read = sum(map(len, tree.contexts)) + sum(map(len, tree.problems))
        return cls(read + sum(lengths), weights, width, max(lengths), lora)

    def sampling(self) -> tuple[float, float]:
        """Operations and bytes of sampling."""
        return 2.0 * self.weights * self.tokens, float(self.weights * self.width * self.steps)

    def update(self) -> tuple[float, float]:
        """Operations and bytes of forward and backward pass and of AdamW's reads and writes in fp32."""
        if self.lora:
            return 4.0 * self.weights * self.tokens, 2.0 * self.weights * self.width
        return 6.0 * self.weights * self.tokens, 28.0 * self.weights


def measure_device(device: str) -> dict[str, float]:
    """Bytes a second of a large copy, read and written, and operations a second of a large matrix product."""
    gpu = device == "cuda"
    kind, size, bytes_copied = (torch.bfloat16, 8192, 2**30) if gpu else (torch.float32, 1024, 2**27)
    source = torch.rand(bytes_copied // 4, device=device)
    target = torch.empty_like(source)
    one, other = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    copy = _best(lambda: target.copy_(source), gpu)
    product = _best(lambda: one @ other, gpu)
    return {"bytes_per_second": 2 * bytes_copied / copy, "operations_per_second": 2 * size**3 / product}


def _best(work: Any, gpu: bool, repeats: int = 10) -> float:
    """Seconds of the fastest of several times, the first two not counted."""
    times = []
    for _ in range(repeats + 2):
        started = time.perf_counter()
        work()
        if gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times[2:])
