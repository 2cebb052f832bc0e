"""The gradient of `slow.feedback` written out in plain PyTorch: ranks by words, and rows of both losses in one update."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from slow_helpers import GROUP, REWARDS, make_recipe, make_rollouts, make_trainer, make_update, weights, weights_after
from transformers import AutoModelForCausalLM

from fastslow.engine.base import Row, Update
from fastslow.records import Rollout
from fastslow.slow.update import build_update
from fastslow.slow.words import Trust


def all_logprobs(model: Any, prompt: Sequence[int], written: Sequence[int]) -> torch.Tensor:
    ids = torch.tensor([[*prompt, *written]])
    return torch.log_softmax(model(input_ids=ids).logits[0, len(prompt) - 1 : -1], dim=-1)


def of_row(model: Any, teacher: Any, row: Row) -> torch.Tensor:
    """Of each token: −A · log π (the ratio is 1), or the KL from the teacher."""
    written = list(row.turn.completion.ids)
    log_p = all_logprobs(model, row.turn.prompt_ids, written)
    if not row.teacher_prompt:
        return -row.advantage * log_p.gather(1, torch.tensor(written)[:, None])[:, 0]
    with torch.no_grad():
        log_q = all_logprobs(teacher, row.teacher_prompt, written)
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def mixed(model: Any, teacher: Any, update: Update, rollouts: Sequence[Rollout]) -> torch.Tensor:
    """Mean over problems of the mean over their tokens; what is distilled is weighed by twice the std of the rewards, and by
    1 where these are equal."""
    home = {id(turn): index // GROUP for index, rollout in enumerate(rollouts) for turn in rollout.turns}
    problems: dict[int, list[torch.Tensor]] = {}
    for row in update.rows:
        problem = home[id(row.turn)]
        rewards = np.array([rollout.score for rollout in rollouts[problem * GROUP : (problem + 1) * GROUP]])
        weight = 1.0 if not row.teacher_prompt or not np.ptp(rewards) else 2 * rewards.std()
        problems.setdefault(problem, []).append(weight * of_row(model, teacher, row))
    return torch.stack([torch.cat(tokens).mean() for tokens in problems.values()]).mean()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lora", [None, {"rank": 4, "alpha": 8}])
def test_rows_of_both_losses_in_one_update(lora: dict[str, Any] | None, shared: bool, tiny_folder: Path) -> None:
    recipe = make_recipe(tiny_folder, feedback="distil", lora=lora, microbatch=4, shared_prefix=shared)
    rollouts = make_rollouts(REWARDS, turns=[1 + index % 2 for index in range(16)])
    update = make_update(recipe, rollouts)
    assert {bool(row.teacher_prompt) for row in update.rows} == {True, False}
    trainer = make_trainer(recipe, [update])
    assert trainer.teacher is not None
    trainer.teacher.freeze()
    teacher, student = make_trainer(recipe).model.eval(), make_trainer(recipe).model.eval()
    teacher.load_state_dict(trainer.model.state_dict())
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():  # away from the teacher
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=0.05)
    student.load_state_dict(trainer.model.state_dict())
    loss = mixed(student, teacher, update, rollouts)
    loss.backward()
    before, after = weights(trainer), weights_after(trainer)
    expected = {name: value.grad for name, value in student.named_parameters() if value.requires_grad}
    assert max(value.abs().max() for value in expected.values()) > 1e-3
    for name, value in expected.items():
        torch.testing.assert_close(before[name] - after[name], value, atol=2e-6, rtol=1e-4)
    assert trainer.last_logs["loss"] == pytest.approx(loss.item(), rel=1e-4, abs=1e-4)
    with torch.no_grad():
        taught = torch.cat([of_row(student, teacher, row) for row in update.rows if row.teacher_prompt])
    assert trainer.last_logs["distillation"] == pytest.approx(taught.mean().item(), rel=1e-4)


def test_the_numbers_of_each_loss_are_means_over_its_own_tokens(tiny_folder: Path) -> None:
    """The penalty of the policy rows, the divergence of the distilled ones."""
    rollouts = make_rollouts(REWARDS)
    recipe = make_recipe(tiny_folder, feedback="distil", kl=0.1)
    update = make_update(recipe, rollouts)
    logs = {}
    for name, rows in (("both", update.rows), *zip(("policy", "taught"), update.by_loss(), strict=True)):
        trainer = make_trainer(recipe, [Update(1, getattr(rows, "rows", rows))])
        assert trainer.teacher is not None
        trainer.teacher.freeze()
        with torch.no_grad():
            trainer.model.lm_head.weight.mul_(1.5)
        weights_after(trainer)
        logs[name] = trainer.last_logs
    assert logs["both"]["kl"] == pytest.approx(logs["policy"]["kl"], rel=1e-4)
    assert logs["both"]["kl"] > 1e-4
    assert logs["both"]["distillation"] == pytest.approx(logs["taught"]["distillation"], rel=1e-4)
    assert "distillation" not in logs["policy"]


def test_the_gradient_of_ranks_is_that_of_rewards_plus_that_of_words(tiny_folder: Path) -> None:
    """−(1/P) Σ of equal groups (1/T) Σ_tokens A · log π with A = bonus / (largest std + ε), added to today's gradient."""
    rollouts = make_rollouts(REWARDS)
    chain = np.sign(np.subtract.outer(np.arange(GROUP), np.arange(GROUP))).astype(np.int8)
    trust = Trust().after(rollouts, [chain] * 4)
    assert trust.smallest == pytest.approx(0.1)

    def moved(update: Update) -> dict[str, torch.Tensor]:
        trainer = make_trainer(recipe, [update])
        before, after = weights(trainer), weights_after(trainer)
        return {name: before[name] - after[name] for name in before}

    recipe = make_recipe(tiny_folder, feedback="rank")
    today = moved(build_update(rollouts, recipe.slow, 1)[0])
    found = moved(build_update(rollouts, recipe.slow, 1, ranks=(trust, [chain] * 4))[0])
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    bonus = 0.25 * 0.1 * np.array([-1, -1 / 3, 1 / 3, 1])
    advantages = bonus / (0.05 * np.sqrt(4 / 3) + 1e-4)
    rows = [
        Row(turn, advantage, 0)
        for rollout, advantage in zip(rollouts[4:8], advantages.tolist(), strict=True)
        for turn in rollout.turns
    ]
    (torch.cat([of_row(model, None, row) for row in rows]).mean() / 4).backward()
    words = {name: value.grad for name, value in model.named_parameters()}
    assert max(value.abs().max() for value in words.values()) > 1e-3
    for name, value in words.items():
        torch.testing.assert_close(found[name], today[name] + value, atol=2e-6, rtol=1e-4)
