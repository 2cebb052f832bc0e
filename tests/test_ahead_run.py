"""Whole runs of a real model that begins groups ahead: whose log-probabilities are kept, and what an interruption changes."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import EXAMPLE, outcome
from rollout_helpers import COLOURS, PlanAndDo
from transformers import AutoModelForCausalLM

from fastslow.base.errors import RecipeError
from fastslow.base.world import World
from fastslow.engine.base import Numbers, Update
from fastslow.engine.local.engine import LocalEngine
from fastslow.launch import start
from fastslow.models.load import load_policy
from fastslow.recipe import Recipe, build_recipe, load_recipe
from fastslow.records import Turn
from fastslow.runs.folder import RunFolder
from fastslow.slow.losses import objective
from fastslow.tasks.base import Ask, Example, Feedback, Split

STEPS, PROBLEMS, GROUP = 5, 3, 4


class Talks(PlanAndDo):
    """Conversations of one to four turns; the score is the share of distinct words."""

    def examples(self, split: Split) -> Sequence[Example]:
        return [Example(f"{split}-{index}", {"turns": 1 + index % 4, "index": index}) for index in range(60)]

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        said: list[str] = []
        for turn in range(example.data["turns"]):
            shown = " ".join(
                [COLOURS[example.data["index"] % 3], *(word for text in said for word in text.split()[:3])]
            )
            said.append((yield Ask("plan" if turn % 2 == 0 else "do", [{"role": "user", "content": shown}])))
        words = " ".join(said).split()
        return Feedback(len(set(words)) / max(len(words), 1), "say more")


def recipe_of(model: Path, **sampling: Any) -> Recipe:
    return build_recipe(
        {
            "method": "rl",
            "model": {"name": str(model), "device": "cpu"},
            "task": "given",
            "slow": {"steps": STEPS, "problems": PROBLEMS, "group": GROUP, "microbatch": 4, "kl": 0.0,
                     "learning_rate": 3e-2, "warmup_steps": 0},
            "sampling": {"max_tokens": 24, **sampling},
            "evaluation": {"every": 0},
            "output": {"checkpoint_every": 1, "save_rollouts": False},
        }
    )  # fmt: skip


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[Update]:
    """The updates of every run."""
    made: list[Update] = []
    update = LocalEngine.update

    def noted(self: LocalEngine, given: Update) -> Numbers:
        made.append(given)
        return update(self, given)

    monkeypatch.setattr(LocalEngine, "update", noted)
    return made


@torch.no_grad()
def logprobs(policy: torch.nn.Module, turn: Turn) -> torch.Tensor:
    """One sequence, no padding."""
    logits = policy(torch.tensor([[*turn.prompt_ids, *turn.completion.ids]])).logits[0, len(turn.prompt_ids) - 1 : -1]
    return torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(turn.completion.ids)[:, None])[:, 0]


def test_every_token_keeps_the_log_probability_under_the_policy_that_drew_it(
    tiny_folder: Path, tmp_path: Path, updates: list[Update]
) -> None:
    """Scored again with the weights of every step. The conversations have several turns; a run that is interrupted inside
    answers and turns ends as the other one."""
    alone = start.train(recipe_of(tiny_folder, ahead=1.0), tmp_path / "alone", task=Talks())
    folders = [tiny_folder, *(alone / "checkpoints" / f"step-{step:06d}" for step in range(1, STEPS))]
    policies = [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in folders]
    older = mixed = 0
    for update in updates:
        for row in update.rows:
            completion = row.turn.completion
            scores = {step: logprobs(policies[step], row.turn) for step in set(completion.steps)}
            expected = torch.stack([scores[step][place] for place, step in enumerate(completion.steps)])
            torch.testing.assert_close(torch.tensor(completion.logprobs), expected, atol=1e-4, rtol=1e-4)
            older += max(completion.steps) < update.step - 1
            mixed += len(scores) > 1
    assert older > 0
    assert mixed > 0
    rows = RunFolder.open(alone).rows("metrics")
    assert sum(row["in_play"] for row in rows) == (STEPS - 1) * PROBLEMS
    assert rows[-1]["rollouts_slow"] == STEPS * PROBLEMS * GROUP
    for step in (1, 3):
        folder = tmp_path / f"copy-{step}"
        shutil.copytree(alone, folder)
        for later in range(step + 1, STEPS + 1):
            shutil.rmtree(folder / "checkpoints" / f"step-{later:06d}")
        start.resume(folder, step=step, trust=True, task=Talks())
        assert outcome(folder) == outcome(alone)


def test_both_loops_and_reuse(by_words: list[str], tmp_path: Path) -> None:
    """Interrupted in the middle of a cycle."""
    small = [
        "slow.steps=6", "slow.learning_rate=1e-2", "slow.warmup_steps=0", "slow.group=4", "slow.problems=4",
        "fast.cycle=3", "fast.anchors=6", "fast.budget=40", "fast.minibatch=2",
        "fast.optimizer.proposals=2", "fast.population=2",
        "fast.reuse=true", "fast.adaptive=true", "evaluation.every=0", "output.checkpoint_every=1",
        "sampling.max_tokens=8", "sampling.ahead=0.5",
    ]  # fmt: skip
    alone = start.train(load_recipe(EXAMPLE, [*small, *by_words]), tmp_path / "alone")
    rows = RunFolder.open(alone).rows("metrics")
    assert [row["in_play"] for row in rows] == [2, 2, 0, 2, 2, 0]  # nothing is begun across the end of a cycle
    assert sum(row["staleness"] for row in rows) > 0
    folder = tmp_path / "copy"
    shutil.copytree(alone, folder)
    for later in (5, 6):
        shutil.rmtree(folder / "checkpoints" / f"step-{later:06d}")
    start.resume(folder, step=4, trust=True)
    assert outcome(folder) == outcome(alone)


def test_it_needs_one_process(tiny_folder: Path, tmp_path: Path) -> None:
    recipe = recipe_of(tiny_folder, ahead=1.0)
    with pytest.raises(RecipeError, match=r"sampling.ahead=1 .* 2 processes"):
        LocalEngine(load_policy(recipe.model), recipe, tmp_path, World(rank=0, size=2), objective(recipe.slow))
