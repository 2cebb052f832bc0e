"""Scripts for TRL that define their environment where they train: run as they are until they make their trainer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from test_trl_environment import call, play

from fastslow.base.errors import TaskError
from fastslow.launch.identity import identity
from fastslow.recipe import build_recipe
from fastslow.tasks.adapters.trl_script import TRLScriptTask
from fastslow.tasks.registry import build_task

SCRIPT = '''
import argparse

from datasets import Dataset
from letters import LETTERS  # beside the script
from trl import GRPOConfig, GRPOTrainer


def reward_func(environments, **kwargs):
    """Say what was asked for."""
    return [environment.reward if environment.kind == "say" else None for environment in environments]


def other_reward(environments, **kwargs):
    return [None if environment.kind == "say" else 2.0 for environment in environments]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, required=True)
    args = parser.parse_args()
    prompt = [{"role": "user", "content": "Say a letter."}]
    dataset = Dataset.from_dict({"prompt": [prompt] * args.rows, "kind": ["say", "other"] * (args.rows // 2)})

    class Env:
        def reset(self, **kwargs) -> str | None:
            self.kind = kwargs["kind"]
            self.reward = 0.0

        def say(self, letter: str) -> str:
            """Say a letter.

            Args:
                letter: The letter.
            """
            self.reward = float(letter == LETTERS[0])
            return letter

    trainer = GRPOTrainer(
        "Qwen/Qwen3-0.6B",
        [reward_func, other_reward],
        args=GRPOConfig(output_dir="out", bf16=True, use_vllm=True, reward_weights=[3.0, 1.0]),
        train_dataset=dataset,
        environment_factory=Env,
    )
    raise AssertionError("nothing trains here")


if __name__ == "__main__":
    main()
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delitem(sys.modules, "letters", raising=False)
    (tmp_path / "letters.py").write_text("LETTERS = 'xyz'\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def make(folder: Path, **options: Any) -> TRLScriptTask:
    settings = {"script": str(folder / "script.py"), "arguments": "--rows 8", "holdout": 0, "high": [1, 2], **options}
    task = build_task(build_recipe({"model": "none", "task": {"name": "trl-script", **settings}}))
    assert isinstance(task, TRLScriptTask)
    return task


def test_the_environment_rows_and_rewards_of_a_script_are_the_task(folder: Path) -> None:
    before = sys.argv, list(sys.path)
    task = make(folder)
    assert (sys.argv, sys.path) == before
    rollouts, prompts = play(task, call("say", letter="x"))
    assert sorted(rollout.score for rollout in rollouts) == [1.0] * 8
    assert {tuple(rollout.feedback.parts) for rollout in rollouts} == {("reward_func",), ("other_reward",)}
    assert "Say a letter." in prompts[0]
    assert {rollout.score for rollout in play(task, call("say", letter="y"))[0]} == {0.0, 1.0}
    assert not any(rollout.faults for rollout in rollouts)
    assert [reward.weight for reward in task._rewards] == [3.0, 1.0]


def test_the_same_script_is_the_same_task(folder: Path) -> None:
    assert identity(make(folder)) == identity(make(folder))
    before = identity(make(folder))
    (folder / "script.py").write_text(SCRIPT.replace("float(letter", "2 * float(letter"))
    assert identity(make(folder)) != before


def test_scripts_that_do_not_get_to_an_environment_say_why(folder: Path) -> None:
    for script, words in (
        (SCRIPT.replace("environment_factory=Env,", ""), r"has no environment_factory; .* the task trl"),
        (SCRIPT.replace("=Env,", "={'a': Env},"), "dictionary of factories"),
        (SCRIPT.replace("train_dataset=dataset,", ""), "train_dataset is of type NoneType"),
        (SCRIPT.replace("    main()", "    pass"), "has ended and has made no GRPOTrainer"),
        (SCRIPT.replace("import argparse", "import nowhere"), "ModuleNotFoundError: No module named 'nowhere'"),
        (SCRIPT.replace("--rows", "--lines"), "SystemExit: 2"),
    ):
        (folder / "script.py").write_text(script)
        with pytest.raises(TaskError, match=words):
            make(folder)
    with pytest.raises(TaskError, match="there is no script"):
        make(folder, script="nowhere.py")
