"""The update of supervised learning against plain PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from slow_helpers import make_recipe, make_rollouts, make_trainer, weights_after
from transformers import AutoModelForCausalLM

from fastslow.slow.update import build_imitation


@pytest.mark.parametrize("method", ["rl", "distill"])
def test_the_gradient_is_that_of_cross_entropy(method: str, tiny_folder: Path, tmp_path: Path) -> None:
    """A mean over the tokens of each rollout, then over rollouts; a teacher that has nothing to say changes nothing."""
    rollouts = make_rollouts([1.0] * 5, group=1, turns=[1, 2, 1, 1, 3], policy_step=0)
    trainer = make_trainer(make_recipe(tiny_folder, method=method), [build_imitation(rollouts, step=7)])
    if trainer.teacher:
        trainer.teacher.freeze()
    after = weights_after(trainer)
    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    losses = []
    for rollout in rollouts:
        tokens = []
        for turn in rollout.turns:
            prompt, written = list(turn.prompt_ids), list(turn.completion.ids)
            logits = model(torch.tensor([prompt + written])).logits[0, len(prompt) - 1 : -1]
            tokens.append(torch.nn.functional.cross_entropy(logits, torch.tensor(written), reduction="none"))
        losses.append(torch.cat(tokens).mean())
    loss = torch.stack(losses).mean()
    loss.backward()
    assert trainer.last_logs["loss"] == pytest.approx(loss.item(), rel=1e-4)  # type: ignore[attr-defined]
    for name, value in model.named_parameters():
        assert value.grad is not None
        expected = value.detach() - value.grad  # the learning rate is 1
        torch.testing.assert_close(after[name], expected, atol=1e-5, rtol=1e-4)
