"""The gradient of one update against the CISPO loss with its KL penalty, written out in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from slow_helpers import GROUP, REWARDS, make_recipe, make_rollouts, make_trainer, make_updates, weights, weights_after
from transformers import AutoModelForCausalLM

from fastslow.engine.base import Row, Update
from fastslow.engine.local.generate import generate
from fastslow.records import Rollout, Sampling, Turn
from fastslow.slow.update import build_update


def logprobs(model: Any, turn: Turn, temperature: float = 1.0) -> torch.Tensor:
    """Log-probabilities of all next tokens at each position of a completion: one sequence, no padding, no mask."""
    ids = torch.tensor([[*turn.prompt_ids, *turn.completion.ids]])
    logits = model(input_ids=ids).logits[0, len(turn.prompt_ids) - 1 : -1]
    return torch.log_softmax(logits / temperature, dim=-1)


def oracle(
    model: Any, rollouts: Sequence[Rollout], *, cap: float, stale: bool, temperature: float = 1.0
) -> torch.Tensor:
    """−(1/P) Σ_problems (1/T_problem) Σ_tokens sg(min(ρ, cap)) · A · log π, over problems whose rewards differ."""
    of_problems = []
    for start in range(0, len(rollouts), GROUP):
        group = rollouts[start : start + GROUP]
        rewards = torch.tensor([rollout.score for rollout in group], dtype=torch.float64)
        if len(set(rewards.tolist())) == 1:
            continue
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        terms = []
        for rollout, advantage in zip(group, advantages, strict=True):
            for turn in rollout.turns:
                chosen = torch.tensor(turn.completion.ids)
                logp = logprobs(model, turn, temperature).gather(1, chosen[:, None])[:, 0]
                behaviour = torch.tensor(turn.completion.logprobs, dtype=logp.dtype) if stale else logp.detach()
                ratio = (logp.detach() - behaviour).exp().clamp(max=cap)
                terms.append(ratio * advantage.to(logp.dtype) * logp)
        of_problems.append(torch.cat(terms).mean())
    return -torch.stack(of_problems).mean()


def gradient(folder: Path, rollouts: Sequence[Rollout], **how: Any) -> tuple[float, dict[str, torch.Tensor]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loss = oracle(model, rollouts, **how)
    loss.backward()
    return loss.item(), {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize(
    ("turns", "stale", "cap", "temperature"),
    [(1, False, 4.0, 1.0), (2, False, 4.0, 0.7), (1, True, 4.0, 1.0), (2, True, 1.0, 1.0)],
)
def test_the_gradient_is_cispo_with_the_mean_over_problems(
    turns: int, stale: bool, cap: float, temperature: float, tiny_folder: Path, tmp_path: Path
) -> None:
    """Stale rollouts come from an older policy: their ratio is against the log-probabilities stored with them."""
    recipe = make_recipe(tiny_folder, ratio_cap=cap, temperature=temperature, microbatch=8)
    rollouts = make_rollouts(REWARDS, turns=turns, policy_step=0)
    update = build_update(rollouts, recipe.slow, step=3 if stale else 1)[0]
    trainer = make_trainer(recipe, [update])
    before = weights(trainer)
    after = weights_after(trainer)
    loss, expected = gradient(tiny_folder, rollouts, cap=cap, stale=stale, temperature=temperature)
    assert max(value.abs().max() for value in expected.values()) > 1e-2
    for name, value in expected.items():
        torch.testing.assert_close(before[name] - after[name], value, atol=2e-6, rtol=1e-4)
    norm = torch.stack([value.norm() for value in expected.values()]).norm().item()
    assert trainer.last_logs["grad_norm"] == pytest.approx(norm, rel=1e-4)
    assert trainer.last_logs["loss"] == pytest.approx(loss, rel=1e-4, abs=1e-4)


def test_the_cap_binds_on_some_tokens_only(tiny_folder: Path) -> None:
    """What the test above relies on: its stale rollouts have ratios on both sides of 1."""
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    ratios = [
        (logprobs(model, turn).gather(1, torch.tensor(turn.completion.ids)[:, None])[:, 0].detach()
         - torch.tensor(turn.completion.logprobs)).exp()
        for rollout in make_rollouts(REWARDS, turns=2) for turn in rollout.turns
    ]  # fmt: skip
    share = (torch.cat(ratios) > 1).float().mean()
    assert 0.1 < share < 0.9


def test_the_gradient_is_the_slope_of_the_loss(tiny_folder: Path, tmp_path: Path) -> None:
    """Finite differences along each weight's own gradient. On-policy, the loss is a plain function of the weights."""
    recipe = make_recipe(tiny_folder, microbatch=8)
    rollouts = make_rollouts(REWARDS)
    trainer = make_trainer(recipe, [build_update(rollouts, recipe.slow, step=1)[0]])
    before = weights(trainer)
    after = weights_after(trainer)
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float64)
    step = 5e-3  # not smaller: the model's norms compute in float32 whatever the weights are
    for name in ("lm_head.weight", "model.layers.0.self_attn.v_proj.weight", "model.layers.1.mlp.down_proj.weight"):
        found = (before[name] - after[name]).double()
        parameter, losses = model.get_parameter(name), []
        with torch.no_grad():
            for change in (step, -2 * step):
                parameter += change * found / found.norm()
                losses.append(oracle(model, rollouts, cap=4.0, stale=False).item())
            parameter += step * found / found.norm()
        slope = (losses[0] - losses[1]) / (2 * step)
        assert slope == pytest.approx(found.norm().item(), rel=2e-3)


def test_sampled_rollouts_have_ratio_one(tiny_folder: Path, tmp_path: Path) -> None:
    """The sampler's log-probabilities are the trainer's own, temperature included: fresh ratios need no correction."""
    recipe = make_recipe(tiny_folder, temperature=0.7)
    trainer = make_trainer(recipe)
    prompts = [list(rollout.turns[0].prompt_ids) for rollout in make_rollouts(REWARDS)[::3]]
    torch.manual_seed(0)
    drawn = generate(trainer.model, prompts, Sampling(0.7, 1.0, 8), pad_id=0, eos_ids=[2], batch=4)
    rows = [Turn("system", "", prompt, completion, "") for prompt, completion in zip(prompts, drawn, strict=True)]
    update = Update(5, [Row(turn, 1.0, policy_step=0) for turn in rows])
    batch = trainer.tensors(update)
    again = trainer.score(trainer.model, batch)
    kept = batch["completion_mask"].bool()
    torch.testing.assert_close(again[kept], batch["behaviour"][kept], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kl", [0.0, 0.1])
def test_a_step_with_nothing_to_learn_leaves_the_weights_alone(kl: float, tiny_folder: Path, tmp_path: Path) -> None:
    """Even with Adam's momentum from the step before; and the step after goes on as if it had not been."""
    recipe = make_recipe(tiny_folder, steps=3, learning_rate=1e-2, kl=kl)
    first, last = (
        build_update(make_rollouts(REWARDS), recipe.slow, 1)[0],
        build_update(make_rollouts(REWARDS, seed=5), recipe.slow, 3)[0],
    )
    decayed = partial(torch.optim.AdamW, weight_decay=0.1)
    nothing = build_update(make_rollouts([1.0] * 16), recipe.slow, 2)[0]
    assert not nothing.rows
    seen: list[dict[str, torch.Tensor]] = []
    logs: list[dict[str, float | None]] = []

    trainer = make_trainer(recipe)
    trainer.make_optimizer = decayed  # type: ignore[method-assign]
    trainer.prepare()
    for update in (first, nothing, last):
        seen.append(weights(trainer))
        logs.append(trainer.step(update))
    assert all(torch.equal(seen[1][name], seen[2][name]) for name in seen[1])
    assert any(not torch.equal(seen[0][name], seen[1][name]) for name in seen[1])
    assert logs[1]["grad_norm"] == 0
    assert logs[1]["loss"] == 0

    without = make_trainer(make_recipe(tiny_folder, steps=2, learning_rate=1e-2, kl=kl))
    without.make_optimizer = decayed  # type: ignore[method-assign]
    make_updates(without, [first, last])
    for name, value in weights(without).items():
        torch.testing.assert_close(weights(trainer)[name], value, atol=1e-7, rtol=1e-6)


def test_with_lora_the_reference_is_the_disabled_adapter(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder, steps=2, learning_rate=0.1, kl=0.1, lora={"rank": 4, "alpha": 8})
    updates = [build_update(make_rollouts(REWARDS, seed=seed), recipe.slow, seed)[0] for seed in (1, 2)]
    trainer = make_trainer(recipe)
    assert trainer.reference is None
    divergences = [logs["kl"] for logs in make_updates(trainer, updates)]
    assert divergences[0] == pytest.approx(0.0, abs=1e-7)
    assert divergences[1] > 1e-5
    # The adapter has moved; the reference is still the base model.
    batch = trainer.tensors(updates[0])
    base = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    for index, row in enumerate(sorted(updates[0].rows, key=lambda row: row.turn.prompt_ids)):
        with torch.no_grad():
            expected = logprobs(base, row.turn).gather(1, torch.tensor(row.turn.completion.ids)[:, None])[:, 0]
        found = batch["reference"][index][: len(expected)]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert not any(value.requires_grad for name, value in trainer.model.named_parameters() if "lora_" not in name)


def test_loss_gradient_norm_and_entropy_reach_the_logs(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = make_recipe(tiny_folder, microbatch=16, kl=0.1)
    update = build_update(make_rollouts(REWARDS), recipe.slow, 1)[0]
    trainer = make_trainer(recipe, [update])
    base = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    weights_after(trainer)
    with torch.no_grad():
        entropies = torch.cat([-(p.exp() * p).sum(-1) for p in (logprobs(base, row.turn) for row in update.rows)])
    assert trainer.last_logs["entropy"] == pytest.approx(entropies.mean().item(), rel=1e-4)
    assert trainer.last_logs["kl"] == pytest.approx(0.0, abs=1e-6)
    assert trainer.last_logs["learning_rate"] == 1.0
    assert trainer.last_logs["grad_norm"] > 0
