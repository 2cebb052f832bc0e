"""vLLM's weights from step to step: TRL's own code, over an engine that only remembers what it was told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_policy_sampler import make
from trl.distributed import DistributedBackend
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from fastslow.engine.local.sampler import PolicySampler, Vllm
from fastslow.records import Completion, Sampling

SAMPLING = Sampling(0.5, 0.9, 7)


class Engine:
    """As much of vLLM's `LLM` as TRL calls."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.weights: dict[str, torch.Tensor] = {}
        self.requests: list[tuple[list[list[int]], Any]] = []
        model = SimpleNamespace(load_weights=self._load)
        worker = SimpleNamespace(model_runner=SimpleNamespace(model=model))
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))

    def _load(self, pairs: list[tuple[str, torch.Tensor]]) -> None:
        if self.told[-1:] != ["load"]:
            self.told.append("load")
        self.weights.update({name: value.clone() for name, value in pairs})

    def reset_prefix_cache(self) -> None:
        self.told.append("reset")

    def generate(self, prompts: list[dict[str, Any]], sampling_params: Any, use_tqdm: bool) -> list[Any]:
        self.told.append("generate")
        self.requests.append(([prompt["prompt_token_ids"] for prompt in prompts], sampling_params))
        logprob = SimpleNamespace(rank=1, logprob=-0.5)
        output = SimpleNamespace(token_ids=[3, 2], logprobs=[{3: logprob}, {2: logprob}])
        return [SimpleNamespace(prompt_token_ids=prompt["prompt_token_ids"], outputs=[output]) for prompt in prompts]


@pytest.fixture
def sampler(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PolicySampler:
    """Over a trainer that believes it has vLLM; TRL's class without its start."""
    monkeypatch.setattr(vllm_generation, "SamplingParams", lambda **settings: settings, raising=False)
    sampler = make(tiny_folder, tmp_path)
    trainer = sampler.trainer
    generation = VLLMGeneration.__new__(VLLMGeneration)
    generation.__dict__.update(
        model=trainer.model, accelerator=trainer.accelerator, _dist=DistributedBackend(trainer.accelerator)
    )
    generation.__dict__.update(
        mode="colocate", llm=Engine(), tensor_parallel_size=1, structured_outputs_regex=None, generation_kwargs={}
    )
    generation.__dict__.update(temperature=1.0, top_p=1.0, top_k=0, min_p=None, repetition_penalty=1.0, logprobs=0)
    generation.__dict__.update(max_completion_length=6, enable_sleep_mode=False)
    sampler.vllm = Vllm(trainer, generation)
    return sampler


def told(sampler: PolicySampler) -> list[str]:
    """What the engine was told since the last time."""
    engine = sampler.vllm.engine.llm
    said, engine.told = engine.told, []
    return said


def test_weights_are_loaded_once_a_step_and_are_those_of_the_moment(sampler: PolicySampler) -> None:
    trainer, engine = sampler.trainer, sampler.vllm.engine.llm
    sampler.sample([[4, 5], [6]], SAMPLING, seed=0)
    sampler.sample([[4, 5]], SAMPLING, seed=0)
    assert told(sampler) == ["load", "reset", "generate", "generate"]
    with torch.no_grad():
        trainer.model.lm_head.weight.add_(1.0)
    trainer.version += 1
    assert sampler.sync() > 0
    assert sampler.sync() == 0
    sampler.sample([[4, 5]], SAMPLING, seed=0)
    assert told(sampler) == ["load", "reset", "generate"]
    torch.testing.assert_close(engine.weights["lm_head.weight"], trainer.model.lm_head.weight.data, atol=0, rtol=0)


def test_prompts_of_mixed_contexts_and_settings_reach_the_engine(sampler: PolicySampler) -> None:
    generation = sampler.vllm.engine
    prompts = [[4, 5], [6], [4, 5], [7, 8]]
    completions = sampler.sample(prompts, SAMPLING, seed=0)
    asked, settings = generation.llm.requests[0]
    assert asked == prompts
    assert (settings["temperature"], settings["top_p"], settings["max_tokens"], settings["n"]) == (0.5, 0.9, 7, 1)
    assert completions == [Completion((3, 2), (-0.5, -0.5))] * 4


def test_other_samplers_have_nothing_to_sync(tiny_folder: Path, tmp_path: Path) -> None:
    sampler = make(tiny_folder, tmp_path)
    assert sampler.sync() == 0
