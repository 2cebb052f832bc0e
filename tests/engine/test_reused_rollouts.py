"""Rollouts of an older policy in an update: their importance ratios are against the policy that drew them, exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from slow_helpers import GROUP, PROBLEMS, REWARDS, make_recipe, make_rollouts, make_trainer, weights_after
from transformers import AutoModelForCausalLM

from fastslow.engine.local.generate import generate
from fastslow.engine.local.trainer import Trainer
from fastslow.records import Rollout, Sampling, Turn
from fastslow.slow.update import build_update
from fastslow.tasks import Feedback


def draw(trainer: Trainer, policy_step: int, seed: int) -> list[Rollout]:
    """Real draws of the policy as it is, with the log-probabilities that the sampler wrote down."""
    templates = make_rollouts(REWARDS)
    torch.manual_seed(seed)
    prompts = [list(r.turns[0].prompt_ids) for r in templates]
    drawn = generate(trainer.model, prompts, Sampling(1.0, 1.0, 8), pad_id=0, eos_ids=[2], batch=16)
    return [
        replace(r, policy_step=policy_step, turns=(Turn("system", "", tuple(prompt), completion, ""),),
                feedback=Feedback(float(reward)))
        for r, prompt, completion, reward in zip(templates, prompts, drawn, REWARDS, strict=True)
    ]  # fmt: skip


def logprobs(model: torch.nn.Module, turn: Turn) -> torch.Tensor:
    """One sequence, no padding."""
    ids = torch.tensor([[*turn.prompt_ids, *turn.completion.ids]])
    logits = model(input_ids=ids).logits[0, len(turn.prompt_ids) - 1 : -1]
    return torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(turn.completion.ids)[:, None])[:, 0]


def test_claimed_and_fresh_rollouts_of_one_group_have_exact_ratios(tiny_folder: Path, tmp_path: Path) -> None:
    """Half of every group is drawn before an update and half after it. The gradient of the mixed step is CISPO with the
    ratio new/old on the old rows, recomputed here from the two policies themselves, and 1 on the new ones."""
    recipe = make_recipe(tiny_folder, steps=1, learning_rate=0.3, microbatch=8)
    first = make_trainer(recipe)
    old = draw(first, policy_step=0, seed=1)
    first.pending = [build_update(make_rollouts(REWARDS, seed=9), recipe.slow, step=1)[0]]
    weights_after(first)
    fresh = draw(first, policy_step=1, seed=2)
    half = GROUP // 2
    mixed = [(old if index % GROUP < half else fresh)[index] for index in range(PROBLEMS * GROUP)]

    second = make_trainer(recipe, [build_update(mixed, recipe.slow, step=2)[0]])
    second.model.load_state_dict(first.model.state_dict())
    before = {name: value.detach().clone() for name, value in second.model.named_parameters()}
    after = weights_after(second)

    drew = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32).eval()
    now = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    now.load_state_dict(first.model.state_dict())
    ratios, of_problems = [], []
    for start in range(0, len(mixed), GROUP):
        group = mixed[start : start + GROUP]
        rewards = torch.tensor([r.score for r in group])
        if len(set(rewards.tolist())) == 1:
            continue
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        terms = []
        for rollout, advantage in zip(group, advantages, strict=True):
            logp = logprobs(now, rollout.turns[0])
            behaviour = logprobs(drew if rollout.policy_step == 0 else now, rollout.turns[0]).detach()
            ratio = (logp.detach() - behaviour).exp()
            if rollout.policy_step == 0:
                ratios.append(ratio)
                recorded = torch.tensor(rollout.turns[0].completion.logprobs)
                torch.testing.assert_close(recorded, behaviour, atol=1e-5, rtol=1e-5)
            terms.append(ratio.clamp(max=4.0) * advantage * logp)
        of_problems.append(torch.cat(terms).mean())
    assert (torch.cat(ratios) - 1).abs().max() > 0.05  # the policy has moved, so the ratios matter
    (-torch.stack(of_problems).mean()).backward()
    for name, value in now.named_parameters():
        assert value.grad is not None
        torch.testing.assert_close((before[name] - after[name]) / 0.3, value.grad, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize(("steps", "recorded"), [((0, 0), False), ((0, 1), True), ((1, 1), False)])
def test_recorded_log_probabilities_are_used_where_a_row_is_older_than_the_step(
    steps: tuple[int, int], recorded: bool, tiny_folder: Path, tmp_path: Path
) -> None:
    rollouts = [replace(r, policy_step=steps[index % 2]) for index, r in enumerate(make_rollouts(REWARDS))]
    recipe = make_recipe(tiny_folder)
    batch = make_trainer(recipe).tensors(build_update(rollouts, recipe.slow, step=max(steps) + 1)[0])
    assert ("behaviour" in batch) is recorded
