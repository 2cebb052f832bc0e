"""The method in one file, examples/fst.py: it learns, and its updates are the library's."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from helpers import ROOT, local_engine

from fastslow.recipe import build_recipe
from fastslow.records import Completion, Context, Feedback, Rollout, Turn
from fastslow.slow.update import build_update


@pytest.fixture(scope="module")
def fst() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fst_example", ROOT / "examples" / "fst.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["fst_example"] = importlib.util.module_from_spec(spec)  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module


def test_it_is_short_and_needs_of_fastslow_only_a_model_and_a_task() -> None:
    lines = (ROOT / "examples" / "fst.py").read_text().splitlines()
    assert len(lines) <= 300
    assert [line for line in lines if line.startswith(("from fastslow", "import fastslow"))] == [
        "from fastslow.models.tokenizer import resolve",
        "from fastslow.tasks.families.rulebook.task import Rulebook, RulebookOptions",
    ]


def test_both_loops_raise_the_reward(fst: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fst, "BUDGET", 60)
    monkeypatch.setattr(fst, "P", 2)
    policy = fst.Policy(seed=1)
    before = fst.evaluate(policy, policy.task.seed_text, problems=32)
    weights = [weight.detach().clone() for weight in policy.model.parameters()]
    pool = fst.train(policy, steps=4, seed=1)
    assert fst.evaluate(policy, pool[0].text, problems=32) > before + 0.15
    assert pool[0].text.startswith(policy.task.seed_text)
    assert len(pool[0].text) > len(policy.task.seed_text)
    assert any(not torch.equal(old, new) for old, new in zip(weights, policy.model.parameters(), strict=True))


def test_its_updates_are_those_of_the_library(fst: ModuleType, tmp_path: Path) -> None:
    """Two updates in a row: the second one's rollouts are drawn by a policy that has moved away from the base model."""
    policy, rate = fst.Policy(seed=2), 1e-3
    trainer = fst.Trainer(policy, learning_rate=rate, warmup=2)
    recipe = build_recipe(
        {
            "method": "rl",
            "model": "nano",
            "task": "rulebook",
            "slow": {"steps": 2, "problems": 4, "group": 8, "learning_rate": rate, "warmup_steps": 2},
            "sampling": {"max_tokens": fst.MAX_TOKENS},
        }
    )
    engine = local_engine(recipe, tmp_path)
    engine.prepare()
    texts = [fst.Candidate(policy.task.seed_text), fst.Candidate("\n".join(policy.task.rules(fst.random.Random(0))))]
    problems = list(policy.task.examples("train")[:8])
    for step, chosen in enumerate([problems[:4], problems[4:]]):
        before = [weight.detach().clone() for weight in policy.model.parameters()]
        played = policy.play([pair for problem in chosen for pair in fst.composed(problem, texts)])
        groups = [played[place * 8 : place * 8 + 8] for place in range(4)]
        assert any(len({rollout.score for rollout in group}) > 1 for group in groups)
        trainer.update(groups)
        engine.update(the_update(played, recipe, step))
        moved = _flat([new - old for new, old in zip(policy.model.parameters(), before, strict=True)])
        other = _flat([new - old for new, old in zip(engine.trainer.model.parameters(), before, strict=True)])
        assert moved.norm() > 0
        assert (moved - other).norm() < 0.01 * moved.norm()


def the_update(played: Sequence[Any], recipe: Any, step: int) -> Any:
    rollouts = [
        Rollout(
            each.problem,
            Context({"system": each.text}),
            step,
            (Turn("system", "", each.prompt, Completion(each.completion, each.logprobs), ""),),
            Feedback(each.score),
        )
        for each in played
    ]
    return build_update(rollouts, recipe.slow, step + 1)[0]


def _flat(weights: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([weight.detach().reshape(-1) for weight in weights])
