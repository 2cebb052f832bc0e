"""Rescued answers in an update: the gradient against the closed form, for a second try and for a teacher's text."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from slow_helpers import GROUP, PROBLEMS, make_recipe, make_rollouts, make_trainer, weights_after
from transformers import AutoModelForCausalLM

from fastslow.engine.local.generate import generate
from fastslow.records import Completion, Rollout, Sampling, Turn
from fastslow.slow.update import Rescued, build_update
from fastslow.tasks import Feedback

CAP = 4.0


def logprobs(model: torch.nn.Module, turn: Turn) -> torch.Tensor:
    ids = torch.tensor([[*turn.prompt_ids, *turn.completion.ids]])
    logits = model(input_ids=ids).logits[0, len(turn.prompt_ids) - 1 : -1]
    return torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(turn.completion.ids)[:, None])[:, 0]


@pytest.mark.parametrize("kind", ["retry", "teacher"])
def test_the_gradient_of_rescued_groups_is_the_closed_form(kind: str, tiny_folder: Path) -> None:
    """All rewards are 0, so only the groups that an answer joined have a gradient. A second try has the ratio of its tokens
    without help to those with help, capped; a teacher's text has the ratio 1."""
    recipe = make_recipe(tiny_folder, steps=1, learning_rate=0.3, microbatch=4)
    trainer = make_trainer(recipe)
    torch.manual_seed(5)
    templates = make_rollouts([0.0] * PROBLEMS * GROUP)
    prompts = [list(each.turns[0].prompt_ids) for each in templates]
    drawn = generate(trainer.model, prompts, Sampling(1.0, 1.0, 8), pad_id=0, eos_ids=[2], batch=16)
    rollouts = [
        replace(each, turns=(Turn("system", "", tuple(prompt), completion, ""),))
        for each, prompt, completion in zip(templates, prompts, drawn, strict=True)
    ]
    now = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    rescued = []
    for group in (1, 3):
        before = rollouts[group * GROUP].turns[0]
        completion = Completion((7, 9, 11 + group, 2), (math.nan,) * 4)
        if kind == "retry":
            with_help = replace(before, prompt_ids=(*before.prompt_ids, 5, 6, 8), completion=completion)
            completion = Completion(completion.ids, tuple(logprobs(now, with_help).tolist()))
        joined: Rollout = replace(
            rollouts[group * GROUP], turns=(replace(before, completion=completion),), feedback=Feedback(1.0)
        )
        rescued.append(Rescued(group, joined, kind == "retry"))
    update, signal = build_update(rollouts, recipe.slow, 1, rescued)
    assert signal.zero_variance == 0.5
    assert len(update.rows) == 2 * (GROUP + 1)
    trainer.pending = [update]
    first = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    after = weights_after(trainer)

    assert trainer.last_logs["sampler_mismatch"] < 1e-4  # help is no difference of sampler and trainer

    ratios, problems = [], []
    rewards = torch.tensor([0.0] * GROUP + [1.0])
    advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
    for each in rescued:
        turns = [r.turns[0] for r in rollouts[each.group * GROUP : (each.group + 1) * GROUP]] + [each.rollout.turns[0]]
        terms = []
        for turn, advantage in zip(turns, advantages, strict=True):
            logp = logprobs(now, turn)
            sampled = torch.tensor(turn.completion.logprobs)
            behaviour = torch.where(sampled.isnan(), logp.detach(), sampled)
            ratio = (logp.detach() - behaviour).exp()
            if turn is turns[-1]:
                ratios.append(ratio)
            terms.append(ratio.clamp(max=CAP) * advantage * logp)
        problems.append(torch.cat(terms).mean())
    if kind == "retry":
        assert (torch.cat(ratios) - 1).abs().max() > 0.01  # otherwise nothing is tested
    else:
        torch.testing.assert_close(torch.cat(ratios), torch.ones(8))
    (-torch.stack(problems).mean()).backward()
    for name, value in now.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close((first[name] - after[name]) / 0.3, value.grad, atol=2e-5, rtol=1e-3)
