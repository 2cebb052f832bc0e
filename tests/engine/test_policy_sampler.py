"""The policy's sampler over a real trainer: current weights, evaluation mode, and everything put back."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from architectures import REFUSED, build
from helpers import local_engine
from peft.tuners.tuners_utils import BaseTunerLayer
from rollout_helpers import PlanAndDo, contexts, problems
from transformers import PreTrainedModel

from fastslow.base.errors import FastSlowWarning
from fastslow.base.world import World
from fastslow.engine.local.sampler import PolicySampler
from fastslow.engine.local.trainer import Trainer
from fastslow.models.chat import ChatFormat
from fastslow.models.load import load_policy
from fastslow.prefix import sampling
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Completion, Sampling
from fastslow.rollouts.play import Player
from fastslow.slow.losses import objective

PROMPTS = [[4, 5, 6], [9], [7, 8, 9, 10, 11, 12, 13], [14, 15]]
SAMPLING = Sampling(0.9, 1.0, 4)


def recipe_of(folder: Path, **changes: dict[str, Any]) -> Recipe:
    return build_recipe(
        {
            "method": "rl",
            "model": {"name": str(folder), "device": "cpu", **changes.get("model", {})},
            "task": "star-graph",
            "slow": {"steps": 1, "problems": 1, "group": 2, "microbatch": 2, "kl": 0.0},
            "sampling": {"max_tokens": 6, "batch": 3, **changes.get("sampling", {})},
        }
    )


def make(folder: Path, out: Path, **changes: dict[str, Any]) -> PolicySampler:
    recipe = recipe_of(folder, **changes)
    trainer = Trainer(load_policy(recipe.model), recipe, World(), objective(recipe.slow))
    return PolicySampler(trainer, recipe.sampling)


@torch.no_grad()
def logprobs(model: torch.nn.Module, prompt: list[int], completion: Completion, temperature: float) -> torch.Tensor:
    """Of the completion, from a full forward pass in evaluation mode."""
    training = model.training
    model.eval()
    logits = model(torch.tensor([[*prompt, *completion.ids]])).logits[0, len(prompt) - 1 : -1]
    model.train(training)
    chosen = torch.tensor(completion.ids)[:, None]
    return torch.log_softmax(logits / temperature, dim=-1).gather(1, chosen)[:, 0]


def check(sampler: PolicySampler, model: torch.nn.Module) -> None:
    completions = sampler.sample(PROMPTS, SAMPLING, seed=3)
    assert len(completions) == len(PROMPTS)
    for prompt, completion in zip(PROMPTS, completions, strict=True):
        expected = logprobs(model, prompt, completion, SAMPLING.temperature)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-5, rtol=0)


def test_it_draws_with_the_weights_of_the_moment(tiny_folder: Path, tmp_path: Path) -> None:
    sampler = make(tiny_folder, tmp_path)
    model = sampler.trainer.model
    check(sampler, model)
    before = sampler.sample(PROMPTS, SAMPLING, seed=3)
    other = tiny.make_model(tiny.make_tokenizer(), seed=1)
    with torch.no_grad():
        other.lm_head.weight *= 20
        for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
            mine.copy_(theirs)
    check(sampler, other)
    assert sampler.sample(PROMPTS, SAMPLING, seed=3) != before


def test_the_same_seed_draws_the_same_tokens_whatever_happened_between(tiny_folder: Path, tmp_path: Path) -> None:
    sampler = make(tiny_folder, tmp_path)
    first = sampler.sample(PROMPTS, SAMPLING, seed=1)
    other = sampler.sample(PROMPTS, SAMPLING, seed=2)
    torch.rand(5)
    assert sampler.sample(PROMPTS, SAMPLING, seed=1) == first != other


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_of_the_model_is_put_back(training: bool, tiny_folder: Path, tmp_path: Path) -> None:
    sampler = make(tiny_folder, tmp_path)
    model = sampler.trainer.model
    model.gradient_checkpointing_enable()  # as training does when the recipe asks for it
    model.train(training)
    own = model.generation_config
    sampler.sample(PROMPTS, SAMPLING, seed=0)
    assert [module.training for module in model.modules()] == [training] * len(list(model.modules()))
    assert model.is_gradient_checkpointing
    assert model.generation_config is own
    assert all(parameter.requires_grad for parameter in model.parameters())
    with pytest.raises(IndexError):  # a token the model does not have
        sampler.sample([[10**6]], SAMPLING, seed=0)
    assert model.training == training
    assert model.generation_config is own


def test_an_adapter_is_part_of_the_policy(tiny_folder: Path, tmp_path: Path) -> None:
    sampler = make(tiny_folder, tmp_path, model={"lora": {"rank": 2}})
    model = sampler.trainer.model
    model.train()
    base = sampler.sample(PROMPTS, SAMPLING, seed=3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=1.0, generator=torch.Generator().manual_seed(0))
    check(sampler, model)
    assert [c.logprobs for c in sampler.sample(PROMPTS, SAMPLING, seed=3)] != [c.logprobs for c in base]
    assert model.training


def test_an_adapter_is_merged_while_it_is_sampled_and_no_longer(tiny_folder: Path, tmp_path: Path) -> None:
    sampler = make(tiny_folder, tmp_path, model={"lora": {"rank": 2}})
    layer = next(module for module in sampler.trainer.model.modules() if isinstance(module, BaseTunerLayer))
    seen: list[bool] = []
    layer.register_forward_hook(lambda module, *_: seen.append(module.merged))
    sampler.sample(PROMPTS, SAMPLING, seed=3)
    assert seen
    assert all(seen)
    assert not layer.merged


@pytest.mark.parametrize("lora", [None, {"rank": 2}])
def test_the_models_own_settings_do_not_leak(lora: dict[str, int] | None, tiny_folder: Path, tmp_path: Path) -> None:
    plain = make(tiny_folder, tmp_path, model={"lora": lora}).sample(PROMPTS, SAMPLING, seed=3)
    sampler = make(tiny_folder, tmp_path, model={"lora": lora})
    own = sampler.trainer.model.generation_config
    own.update(top_k=1, repetition_penalty=1.5, min_p=0.9, suppress_tokens=[4, 5, 6], min_new_tokens=5)
    assert sampler.sample(PROMPTS, SAMPLING, seed=3) == plain
    assert sampler.trainer.model.generation_config.repetition_penalty == 1.5


def test_every_end_token_of_the_model_ends_a_completion(tiny_folder: Path, tmp_path: Path) -> None:
    """Chat models often end a turn with another token than the tokenizer's."""
    model = tiny.make_model(tiny.make_tokenizer())
    model.generation_config.eos_token_id = [9, 11]
    model.save_pretrained(tmp_path / "model")
    tiny.make_tokenizer().save_pretrained(tmp_path / "model")
    sampler = make(tmp_path / "model", tmp_path, sampling={"batch": 64})
    ends = {2, 9, 11}
    completions = sampler.sample(PROMPTS * 10, Sampling(1.0, 1.0, 12), seed=0)
    assert {completion.ids[-1] for completion in completions if len(completion.ids) < 12} == ends
    assert not any(set(completion.ids[:-1]) & ends for completion in completions)


def test_under_autocast_the_master_weights_stay_fp32(tiny_folder: Path, tmp_path: Path) -> None:
    sampler = make(tiny_folder, tmp_path, model={"precision": "bf16"})
    model = sampler.trainer.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    completions = sampler.sample(PROMPTS, SAMPLING, seed=0)
    for name, value in model.state_dict().items():
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, before[name], atol=0, rtol=0)
    for prompt, completion in zip(PROMPTS, completions, strict=True):
        expected = logprobs(model, prompt, completion, SAMPLING.temperature)
        torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=0.05, rtol=0)


def test_playing_with_a_real_policy(tiny_folder: Path, tmp_path: Path) -> None:
    """Several turns, two components, uneven numbers of asks: each turn's record is what the model would give alone."""
    engine = local_engine(recipe_of(tiny_folder), tmp_path, World())
    chat = ChatFormat(engine.tokenizer)
    player = Player(PlanAndDo(), engine, chat)
    pairs = [(example, context) for example in problems([2, 1, 3]) for context in contexts(1)]
    rollouts, _ = player.play(pairs, SAMPLING, policy_step=0, seed=5)
    again, _ = player.play(pairs, SAMPLING, policy_step=0, seed=5)
    assert rollouts == again
    for (example, context), rollout in zip(pairs, rollouts, strict=True):
        assert (rollout.example, rollout.context) == (example, context)
        said: list[str] = []
        for turn in rollout.turns:
            question = [{"role": "user", "content": turn.question}]
            assert list(turn.prompt_ids) == chat.prompt(question, context.texts[turn.component])
            assert turn.question.split()[1:] == " ".join(said).split()
            assert turn.answer == chat.answer(turn.completion.ids)
            expected = logprobs(engine.trainer.model, list(turn.prompt_ids), turn.completion, SAMPLING.temperature)
            torch.testing.assert_close(torch.tensor(turn.completion.logprobs), expected, atol=1e-5, rtol=0)
            said.append(turn.answer)


def test_a_state_space_model_warns_once_and_is_sampled_by_generate(tmp_path: Path) -> None:
    tokenizer = tiny.make_tokenizer()
    model: PreTrainedModel = build(REFUSED["mamba"]())
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    sampler = make(tmp_path / "model", tmp_path)
    with pytest.warns(FastSlowWarning, match="padded batches without shared prefixes because .*MambaForCausalLM"):
        check(sampler, sampler.trainer.model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FastSlowWarning)
        sampler.sample(PROMPTS, SAMPLING, seed=4)


@pytest.mark.parametrize(("ahead", "batches"), [(0, [3, 1]), (0.5, [4])])
def test_groups_begun_ahead_are_decoded_beside_the_others(
    ahead: float, batches: list[int], tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = make(tiny_folder, tmp_path, sampling={"ahead": ahead})
    assert sampler.sample(PROMPTS, SAMPLING, seed=0)  # the first call tries whether the model supports shared prefixes
    seen: list[int] = []
    together = sampling._together
    monkeypatch.setattr(sampling, "_together", lambda begun, room: (seen.append(len(begun)), together(begun, room))[1])
    parts = sampler.sample(PROMPTS, SAMPLING, 0, limits=[4] * len(PROMPTS), enough=lambda rows: not rows)
    assert all(part.ended for part in parts)
    assert seen == batches
