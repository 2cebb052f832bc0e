"""The trainer with shared prefixes: the same updates from fewer tokens, and TRL's own way where a model cannot."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from slow_helpers import REWARDS, make_recipe, make_rollouts, make_trainer, one_update, weights_after
from transformers import AutoConfig, AutoModelForCausalLM

from fastslow.base.errors import FastSlowWarning
from fastslow.base.world import World
from fastslow.engine.base import Update
from fastslow.engine.local.trainer import Trainer
from fastslow.records import Completion
from fastslow.slow.update import build_update


@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}])
def test_on_and_off_make_the_same_update(lora: dict | None, tiny_folder: Path, tmp_path: Path) -> None:
    found = []
    for shared in (True, False):
        recipe = make_recipe(tiny_folder, lora=lora, kl=0.1, microbatch=16, shared_prefix=shared)
        update = build_update(make_rollouts(REWARDS, turns=2), recipe.slow, step=1)[0]
        trainer = make_trainer(recipe, [update])
        found.append((weights_after(trainer), trainer.last_logs))
        assert trainer.shared_prefix is shared
    (mine, logs), (theirs, their_logs) = found
    for name, value in theirs.items():
        torch.testing.assert_close(mine[name], value, atol=1e-6, rtol=1e-6)
    for key in ("loss", "grad_norm", "entropy", "kl", "sampler_mismatch"):
        assert logs[key] == pytest.approx(their_logs[key], rel=1e-4, abs=1e-6)


def tokens_per_update(recipe: Any, update: Update) -> int:
    trainer = make_trainer(recipe, [update])
    seen: list[int] = []
    weights_after_hook = trainer.model.model.embed_tokens.register_forward_hook(
        lambda module, inputs, _output: (
            seen.append(inputs[0].numel()) if module.training and torch.is_grad_enabled() else None
        )
    )
    weights_after(trainer)
    weights_after_hook.remove()
    return sum(seen)


def test_rows_with_the_same_prompt_meet_in_a_microbatch(tiny_folder: Path, tmp_path: Path) -> None:
    """Each of three problems goes through the model in one microbatch of its four rows, whatever order they come in."""
    recipe = make_recipe(tiny_folder, microbatch=4)
    update = build_update(make_rollouts(REWARDS), recipe.slow, step=1)[0]
    assert len(update.rows) == 12
    mixed = replace(update, rows=[update.rows[(5 * place) % 12] for place in range(12)])
    # Three microbatches of rows, a fourth of fillers: one token.
    prompts = {tuple(row.turn.prompt_ids) for row in update.rows}
    most = sum(len(prompt) for prompt in prompts) + sum(len(row.turn.completion.ids) for row in update.rows) + 1
    recipe = make_recipe(tiny_folder, problems=3, microbatch=4)
    assert tokens_per_update(recipe, mixed) <= most
    off = make_recipe(tiny_folder, problems=3, microbatch=4, shared_prefix=False)
    assert tokens_per_update(off, mixed) > 1.3 * most


def test_a_model_that_cannot_is_trained_trls_way_and_says_so_once(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fastslow.engine.local.trainer.why_not_train", lambda _model: "it has state-space layers")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = one_update(tiny_folder, World(), kl=0.1)
    said = [str(warning.message) for warning in caught if warning.category is FastSlowWarning]
    assert len(said) == 1
    assert said[0] == (
        "training falls back to padded batches without shared prefixes because it has state-space layers"
    )
    monkeypatch.undo()
    for name, value in one_update(tiny_folder, World(), kl=0.1)["weights"].items():
        torch.testing.assert_close(found["weights"][name], value, atol=1e-6, rtol=1e-6)


def test_a_mixture_of_experts_is_trained_to_use_them_evenly(tmp_path: Path) -> None:
    """Its loss for that is added to the policy's with the factor of its config, and needs padded batches."""
    config = AutoConfig.for_model(
        "mixtral", vocab_size=25, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=4, num_experts_per_tok=1, router_aux_loss_coef=0.5, pad_token_id=0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tiny.make_tokenizer().save_pretrained(tmp_path)
    recipe = make_recipe(tmp_path, microbatch=16)
    update = build_update(make_rollouts(REWARDS), recipe.slow, step=1)[0]
    found = {}
    for balance in (0.5, 0.0):
        trainer = make_trainer(recipe)
        assert trainer.balance == 0.5
        trainer.balance = balance
        trainer.prepare()
        found[balance] = trainer.step(update)["loss"]
    assert found[0.5] - found[0.0] > 0.4  # 1 if they are used evenly


def scored_models(recipe: Any, monkeypatch: pytest.MonkeyPatch, update: Update) -> list[bool]:
    """Of each scoring pass of one update: was it for a gradient."""
    trainer = make_trainer(recipe, [update])
    passes: list[bool] = []
    original = Trainer.logprobs

    def count(self: Trainer, *arguments: Any, **named: Any) -> Any:
        passes.append(torch.is_grad_enabled())
        return original(self, *arguments, **named)

    monkeypatch.setattr(Trainer, "logprobs", count)
    weights_after(trainer)
    monkeypatch.undo()
    return passes


def test_nothing_is_scored_twice(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass a microbatch; as many for the reference where there is a penalty; one more for what no sampler said."""

    def passes(kl: float, update: Update) -> list[bool]:
        return scored_models(make_recipe(tiny_folder, kl=kl, microbatch=8), monkeypatch, update)

    slow = make_recipe(tiny_folder).slow
    fresh = build_update(make_rollouts(REWARDS), slow, step=1)[0]
    stale = build_update(make_rollouts(REWARDS), slow, step=4)[0]
    assert passes(0.0, fresh) == [True, True]
    assert passes(0.1, fresh) == [False, False, True, True]
    assert passes(0.0, stale) == [True, True]
    assert passes(0.0, without_logprobs(stale)) == [False, True, True]


def without_logprobs(update: Update) -> Update:
    """The sampler has no number for a token of the first row."""
    turn = update.rows[0].turn
    said = (math.nan, *turn.completion.logprobs[1:])
    row = replace(update.rows[0], turn=replace(turn, completion=Completion(turn.completion.ids, said)))
    return replace(update, rows=[row, *update.rows[1:]])


def test_what_the_sampler_did_not_say_is_what_the_policy_says(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder)
    update = without_logprobs(build_update(make_rollouts(REWARDS), recipe.slow, step=4)[0])
    trainer = make_trainer(recipe)
    batch = trainer.tensors(update)
    unknown = batch["sampled"].isnan().any(dim=1)
    assert unknown.sum() == 1
    now = trainer.score(trainer.model, batch)
    mask = batch["completion_mask"].bool()
    expected = torch.where(unknown[:, None], now, batch["sampled"])
    torch.testing.assert_close(batch["behaviour"][mask], expected[mask], atol=1e-6, rtol=1e-6)


def test_the_mismatch_is_the_mean_distance_from_the_sampler(tiny_folder: Path, tmp_path: Path) -> None:
    """Over rows of the policy in training only: an older policy is not expected to agree."""
    recipe = make_recipe(tiny_folder, microbatch=16)
    update = build_update(make_rollouts(REWARDS), recipe.slow, step=1)[0]
    mixed = replace(update, rows=[replace(row, policy_step=-place % 2) for place, row in enumerate(update.rows)])
    mixed = replace(mixed, step=2)
    trainer = make_trainer(recipe)
    batch = trainer.tensors(mixed)
    now = trainer.score(trainer.model, batch)
    chosen = batch["completion_mask"].bool() & batch["fresh"][:, None]
    assert batch["fresh"].sum() == 6
    expected = (now - batch["sampled"]).abs()[chosen].mean().item()
    trainer.pending = [mixed]
    weights_after(trainer)
    assert expected > 0.1
    assert trainer.last_logs["sampler_mismatch"] == pytest.approx(expected, rel=1e-4)
