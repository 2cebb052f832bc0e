"""TRL's environments: `reset`, methods as tools, rewards of the environment and of functions; held against TRL itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_helpers import TOOLS, make_tokenizer
from rollout_helpers import ScriptedEngine

from fastslow.base.errors import TaskError
from fastslow.models.chat import ChatFormat
from fastslow.recipe import build_recipe
from fastslow.records import Context, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.tasks.adapters.trl_environment import TRLEnvironmentTask, tool_specs
from fastslow.tasks.registry import build_task
from fastslow.tasks.stages import refuse_contamination

SOURCE = '''
class Counter:
    made = 0

    def __init__(self):
        Counter.made += 1
        self.value = None

    def reset(self, start=0, **row):
        self.value = start
        self.row = row
        return f" It starts at {start}."

    def add(self, by: int) -> int:
        """Add to the counter.

        Args:
            by: How much.
        """
        self.value += by
        return self.value

    async def fail(self) -> str:
        """Always fails."""
        raise ValueError("no such luck")

    def _hidden(self):
        pass

    def get_reward(self):
        """Reach ten."""
        return min(self.value, 10) / 10


def short(completions, environments, **kwargs):
    """Use few messages."""
    assert environments[0].value is not None
    return [1.0 if len(completion) <= 3 else 0.0 for completion in completions]
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "counting.py").write_text(SOURCE)
    rows = [{"prompt": [{"role": "user", "content": "Count to ten."}], "start": start} for start in (4, 6)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def make(**options: Any) -> TRLEnvironmentTask:
    settings = {"path": "rows.jsonl", "holdout": 0, "environment": "counting.py:Counter", **options}
    task = build_task(build_recipe({"model": "none", "task": {"name": "trl-environment", **settings}}))
    assert isinstance(task, TRLEnvironmentTask)
    return task


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def play(task: TRLEnvironmentTask, *said: str) -> tuple[list[Rollout], list[str]]:
    def rule(prompt: str) -> str:
        return [*said, "done"][min(prompt.count("<|im_start|>assistant") - 1, len(said))]

    engine = ScriptedEngine(make_tokenizer(TOOLS), rule=rule)
    pairs = [(example, Context(dict(task.seed_texts))) for example in task.examples("train")]
    player = Player(task, engine, ChatFormat(engine.tokenizer))
    rollouts = player.play(pairs, Sampling(1.0, 1.0, 300), policy_step=0, seed=0, strict=False)[0]
    return rollouts, [engine.tokenizer.decode(list(turn.prompt_ids)) for each in rollouts for turn in each.turns]


def test_every_rollout_has_an_environment_whose_methods_are_tools(folder: Path) -> None:
    rollouts, prompts = play(make(), call("add", by=2), call("fail"), call("get_reward"))
    assert [rollout.score for rollout in rollouts] == [0.6, 0.8]  # 4 + 2 and 6 + 2: none shares the other's counter
    assert "Count to ten. It starts at 4." in prompts[0]
    assert rollouts[0].turns[0].question == "Count to ten. It starts at 4."
    assert "<tool_response>\n6\n" in prompts[1]
    assert "{'error': 'no such luck'}" in prompts[2]
    assert "there is no tool 'get_reward'" in prompts[3]
    assert "Counter gave 0.6 (best 1)" in rollouts[0].feedback.text
    assert "Reach ten." in rollouts[0].feedback.text
    assert not any(rollout.faults for rollout in rollouts)


def test_reward_functions_get_the_environment_beside_its_own_reward(folder: Path) -> None:
    rollouts, _ = play(make(rewards=["counting.py:short"]), call("add", by=6))
    assert [rollout.score for rollout in rollouts] == [1.0, 1.0]
    rollouts, _ = play(make(rewards=["counting.py:short"]), call("add", by=6), call("add", by=0))
    assert [rollout.score for rollout in rollouts] == [0.5, 0.5]
    assert "Use few messages." in rollouts[0].feedback.text


def test_repeated_rows_are_episodes_that_the_environment_draws(folder: Path) -> None:
    prompt = [{"role": "user", "content": "Play."}]
    (folder / "same.jsonl").write_text(f"{json.dumps({'prompt': prompt})}\n" * 10)
    task = make(path="same.jsonl", holdout=0.2)
    assert [len(task.examples(split)) for split in ("train", "validation", "test")] == [6, 2, 2]
    refuse_contamination(task)
    # Rows that differ in any column are problems of their own, which must not be in two splits.
    rows = [{"prompt": prompt, "start": start} for start in range(10)]
    (folder / "starts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = make(path="starts.jsonl", holdout=0.2)
    assert [len(task.examples(split)) for split in ("train", "validation", "test")] == [6, 2, 2]
    refuse_contamination(task)
    with pytest.raises(TaskError, match="shows the model the same"):
        refuse_contamination(make(path="starts.jsonl", validation_path="starts.jsonl"))


def test_what_an_environment_lacks_is_said(folder: Path) -> None:
    class Bare:
        pass

    class Silent:
        def reset(self) -> None: ...

        def act(self, what):  # type: ignore[no-untyped-def]
            """Act."""

    rows = [{"start": 1}]
    with pytest.raises(TaskError, match="Bare has no method reset"):
        TRLEnvironmentTask(Bare, rows, holdout=0)
    with pytest.raises(TaskError, match=r"tool 'act' of environment Silent cannot be described: .*type hints"):
        TRLEnvironmentTask(Silent, rows, holdout=0)
    (folder / "own.jsonl").write_text('{"start": 3}\n')
    (rollout,), prompts = play(make(path="own.jsonl"))
    assert rollout.score == pytest.approx(0.3)
    assert "user\n It starts at 3." in prompts[0]  # the environment says what is asked


def test_tools_are_those_of_trl(folder: Path) -> None:
    from fastslow.base.registry import load_named

    environment = load_named("environment", "counting.py:Counter")()
    assert [tool["name"] for tool in tool_specs(environment)] == ["add", "fail"]
    assert tool_specs(environment)[0]["parameters"]["properties"]["by"] == {
        "type": "integer",
        "description": "How much.",
    }
