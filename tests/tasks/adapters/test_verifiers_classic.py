"""Environments of verifiers before 0.4: their own rollouts and rubrics, with the policy as the client they call."""

import signal
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tiny
import verifiers_helpers
from packaging.version import Version
from verifiers_helpers import SPLITS, find, play

from fastslow.base.errors import TaskError
from fastslow.launch.start import train
from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.tasks.adapters.verifiers_env.task import WRITE_CALLS, Verifiers
from fastslow.tasks.base import Ask
from fastslow.tasks.scripted import scripted_rollout
from fastslow.tasks.stages import refuse_contamination

if find_spec("verifiers") is None or Version(version("verifiers")) >= Version("0.4"):
    pytest.skip("needs verifiers before 0.4", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("verifiers_packages")


def load(kind: str = "single", arguments: Any = None, **options: Any) -> Verifiers:
    return verifiers_helpers.load("nano-classic", arguments={"kind": kind, **(arguments or {})}, **options)


def call(drawer: str, name: str = "open_drawer") -> str:
    return f'<tool_call>{{"name":"{name}","arguments":{{"drawer":"{drawer}"}}}}</tool_call>'


def test_the_system_prompt_is_the_seed_text_and_the_evaluation_rows_are_validation_and_test() -> None:
    task = load()
    assert dict(task.seed_texts) == {"system": "Follow the rules."}
    assert [len(task.examples(split)) for split in SPLITS] == [12, 2, 2]
    shown = {split: {each.data["problem"].question for each in task.examples(split)} for split in SPLITS}
    assert len(shown["train"] | shown["validation"] | shown["test"]) == 16
    assert shown["train"].isdisjoint(["zorka : k t u g", "fonrax : k t u g", "zorka : p o q", "fonrax : p o q"])
    (asked,), _ = play(task, find(task, "zorka : p m z"), "z m p")
    assert asked == Ask("system", [{"role": "user", "content": "zorka : p m z"}])


@pytest.mark.parametrize(("kind", "sizes"), [("overlap", [12, 2, 2]), ("same_rows", [12, 2, 2])])
def test_what_is_measured_on_is_not_trained_on(kind: str, sizes: list[int]) -> None:
    task = load(kind)
    refuse_contamination(task)
    assert [len(task.examples(split)) for split in SPLITS] == sizes
    assert len({each.data["problem"].question for split in SPLITS for each in task.examples(split)}) == 16


@pytest.mark.parametrize(
    ("answer", "score", "gave"),
    [
        ("z m p", 1, "correct gave 0.75 of 0.75, short gave 0.25 of 0.25"),
        ("z m", 0.25, "correct gave 0 of 0.75, short gave 0.25 of 0.25"),
        ("", 0.25, "correct gave 0 of 0.75, short gave 0.25 of 0.25"),
        ("z m p z m p", 0, "correct gave 0 of 0.75, short gave 0 of 0.25"),
    ],
)
def test_the_rubric_gives_the_score(answer: str, score: float, gave: str) -> None:
    task = load()
    _, feedback = play(task, find(task, "zorka : p m z"), answer)
    assert feedback.score == score
    assert gave in feedback.text


def test_feedback_tells_what_each_reward_gave_and_what_it_is_for() -> None:
    task = load()
    _, wrong = play(task, find(task, "zorka : p m z"), "p")
    assert wrong.text.split("\n") == [
        "'zorka : p m z' earned 0.25 of 1: correct gave 0 of 0.75, short gave 0.25 of 0.25.",
        "zorka means : write the list backwards.",
        "Answers are judged by correct: The list after what the word says to do.",
    ]
    _, told = play(load(feedback="answer"), find(task, "zorka : p m z"), "p")
    assert "The answer of this problem is 'z m p'." in told.text.split("\n")


def test_turns_are_asked_one_by_one_whatever_the_clock_says() -> None:
    task = load("turns", holdout=0)
    assert dict(task.seed_texts) == {"system": "Answer the question."}
    example = find(task, "zorka : p m")
    asked, feedback = play(task, example, "m p", "z")
    first, second = {"role": "user", "content": "zorka : p m"}, {"role": "user", "content": "fonrax : z p"}
    assert [each.messages for each in asked] == [[first], [first, {"role": "assistant", "content": "m p"}, second]]
    assert feedback.score == 0.5
    assert "It took 2 answers and ended by 'has_final_env_response'." in feedback.text
    assert len(play(task, example, "stop")[0]) == 1
    _, cut = play(load("turns", {"max_turns": 2}, holdout=0), example, "m p", "p")
    assert (cut.score, "ended by 'max_turns_reached'" in cut.text) == (0.5, True)


@pytest.mark.parametrize(
    ("first", "result"),
    [(call("2"), "blue"), (call("7"), "'7'"), (call("2", "shut"), "'shut'"), (call("1") + call("2"), "green")],
)
def test_tools_are_described_called_and_answered(first: str, result: str) -> None:
    task = load("tools", holdout=0)
    asked, feedback = play(task, find(task, "open 2"), first, "blue")
    assert '{"name": "open_drawer", "description": "Look into a drawer.", ' in asked[0].messages[0]["content"]
    assert f"<tool_response>\n{result}\n</tool_response>" in asked[1].messages[-1]["content"]
    assert feedback.score == 1


def test_a_broken_call_ends_the_rollout_and_is_explained() -> None:
    task = load("tools", holdout=0)
    _, feedback = play(task, find(task, "open 2"), '<tool_call>{"name": "open_drawer"</tool_call>')
    assert feedback.score == 0
    assert WRITE_CALLS in feedback.text.split("\n")


def test_a_group_of_environments_is_one() -> None:
    task = load("group", holdout=0)
    assert dict(task.seed_texts) == {"system": "Answer the question."}  # one member has a text, the other has none
    (asked,), feedback = play(task, find(task, "zorka : p m z"), "z m p")
    assert [message["role"] for message in asked.messages] == ["system", "user"]
    assert feedback.score == 1
    _, feedback = play(task, find(task, "open 2"), call("2"), "blue")
    assert feedback.score == 1


def test_a_parser_tells_the_form() -> None:
    task = load("form", holdout=0)
    _, feedback = play(task, find(task, "zorka : p m z"), "z m p")
    assert "Write the answer in this form: <answer> ... </answer>" in feedback.text.split("\n")
    assert "found gave 1 of 1" in feedback.text
    assert 0.5 <= feedback.score < 1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("group_reward", "has reward functions that compare the rollouts of a group"),
        ("judge", r"cannot be loaded with arguments .*OPENAI_API_KEY"),
        ("bare", "prompts are bare text to be continued; expected chat messages"),
        ("other", r"cannot be loaded with arguments {'kind': 'other'} .*'other'"),
    ],
)
def test_what_cannot_be_played_is_refused_with_a_reason(
    kind: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(TaskError, match=message):
        load(kind)


def test_what_fails_in_a_rollout_is_raised() -> None:
    task = load("broken", holdout=0)
    with pytest.raises(TaskError, match=r"the environment failed: .*InfraError.*no sandbox"):
        scripted_rollout(task, task.examples("train")[0])


def test_signals_stay_with_the_run() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    load()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize(
    ("kind", "words"),
    [("single", None), ("turns", ["p", "m", "z"]), ("tools", ["red", "green", call("0"), call("1")])],
)
def test_rollouts_train(kind: str, words: list[str] | None, tmp_path: Path) -> None:
    recipe = build_recipe(
        {
            "method": "rl" if words else "fst",
            "model": str(tiny.save(tmp_path / "model", words)) if words else "nano",
            "task": {"name": "verifiers/nano-classic", "arguments": {"kind": kind}, "holdout": 0},
            "slow": {"steps": 2, "problems": 2, "group": 16, "microbatch": 32, "learning_rate": 1e-4, "kl": 0.0},
            "fast": {
                "population": 2,
                "cycle": 2,
                "anchors": 4,
                "budget": 24,
                "optimizer": {"proposals": 2, "proposer": "full"},
            },
            "sampling": {"max_tokens": 1 if words else 6},
            "evaluation": {"every": 0, "problems": 2, "k": 1},
        }
    )
    rows = RunFolder.open(train(recipe, tmp_path / "run")).rows("metrics")
    assert sum(row["trained_rows"] for row in rows) > 0
