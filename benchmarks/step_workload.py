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
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config

from fastslow.models.load import resolve
from fastslow.prefix.tree import prompt_tree

SHAPES: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": {
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


def prepare_model(name: str, work: Path) -> str:
    """What to load: the folder or hub id of a model, or a folder with random weights of a known shape."""
    if name not in SHAPES:
        return resolve(name)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(Qwen2Config(**SHAPES[name], use_cache=True), dtype=torch.bfloat16)
    model.save_pretrained(work / name)
    words_as_tokens(SHAPES[name]["vocab_size"]).save_pretrained(work / name)
    return str(work / name)


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
    """Rollouts of a step: `problems` × `group`, as many under each of `contexts` contexts, all `tokens` long."""

    problems: int
    group: int
    contexts: int
    tokens: int
    problem_tokens: int
    microbatch: int
    vocabulary: int
    even: bool = False
    """All problems equally long, so that stock TRL has nothing to pad."""

    @property
    def rollouts(self) -> int:
        return self.problems * self.group

    def prompts(self, length: int, seed: int) -> list[list[int]]:
        """One prompt for every rollout, problem by problem: a template, a context of so many tokens, a problem."""
        draw = torch.Generator().manual_seed(seed)

        def text(count: int) -> list[int]:
            return torch.randint(2, min(WORDS, self.vocabulary), (count,), generator=draw).tolist()

        template, contexts = text(TEMPLATE), [text(length) for _ in range(self.contexts)]
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

    @classmethod
    def of(cls, prompts: list[list[int]], completion: int, weights: int, width: int) -> LeastWork:
        tree = prompt_tree(prompts)
        read = sum(map(len, tree.contexts)) + sum(map(len, tree.problems))
        return cls(read + len(prompts) * completion, weights, width, completion)

    def sampling(self) -> tuple[float, float]:
        """Operations and bytes of sampling."""
        return 2.0 * self.weights * self.tokens, float(self.weights * self.width * self.steps)

    def update(self) -> tuple[float, float]:
        """Operations and bytes of forward and backward pass and of AdamW's reads and writes in fp32."""
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
