"""Tasksets of verifiers 0.4: installed packages are found, played turn by turn, scored by their rewards, and trained on."""

import asyncio
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import tiny
from packaging.version import Version
from verifiers_helpers import SPLITS, find, load, play

from fastslow.base.errors import RecipeError, TaskError
from fastslow.launch.start import train
from fastslow.recipe import build_recipe
from fastslow.runs.folder import RunFolder
from fastslow.tasks.adapters.verifiers_env.task import WRITE_CALLS
from fastslow.tasks.base import Ask, Feedback
from fastslow.tasks.scripted import scripted_rollout

if find_spec("verifiers") is None or Version(version("verifiers")) < Version("0.4"):
    pytest.skip("needs verifiers 0.4 or later", allow_module_level=True)

RULES = ["zorka means : write the list backwards.", "fonrax means : drop the first item."]
pytestmark = pytest.mark.usefixtures("verifiers_packages")


def call(drawer: Any, name: str = "open") -> str:
    return f'<tool_call>{{"name":"{name}","arguments":{{"drawer":{drawer}}}}}</tool_call>'


# One question ------------------------------------------------------------------------------------------------------------


def test_the_system_prompt_is_the_seed_text_and_not_shown_twice() -> None:
    task = load("nano-words")
    assert dict(task.seed_texts) == {"system": "Follow the rules."}
    (asked,), _ = play(task, find(task, "zorka : p m z"), "z m p")
    assert asked == Ask("system", [{"role": "user", "content": "zorka : p m z"}])


@pytest.mark.parametrize(
    ("answer", "score", "gave"),
    [
        ("z m p", 1, "correct gave 0.75 of 0.75, short gave 0.25 of 0.25"),
        (" z m p\n", 1, "correct gave 0.75 of 0.75, short gave 0.25 of 0.25"),
        ("z m", 0.25, "correct gave 0 of 0.75, short gave 0.25 of 0.25"),
        ("", 0.25, "correct gave 0 of 0.75, short gave 0.25 of 0.25"),
        ("z m p z m p", 0, "correct gave 0 of 0.75, short gave 0 of 0.25"),
    ],
)
def test_rewards_and_their_weights_give_the_score(answer: str, score: float, gave: str) -> None:
    task = load("nano-words")
    _, feedback = play(task, find(task, "zorka : p m z"), answer)
    assert feedback.score == score
    assert gave in feedback.text


def test_feedback_tells_what_each_reward_gave_and_what_it_is_for() -> None:
    task = load("nano-words")
    _, wrong = play(task, find(task, "zorka : p m z"), "p")
    assert wrong.text.split("\n") == [
        "'zorka : p m z' earned 0.25 of 1: correct gave 0 of 0.75, short gave 0.25 of 0.25.",
        RULES[0],
        "Answers are judged by correct: The list after what the word says to do.",
    ]
    _, right = play(task, find(task, "zorka : p m z"), "z m p")
    assert right.text == "'zorka : p m z' earned 1 of 1: correct gave 0.75 of 0.75, short gave 0.25 of 0.25."
    _, told = play(load("nano-words", feedback="answer"), find(task, "zorka : p m z"), "p")
    assert told.text.split("\n")[1] == "The answer of this problem is 'z m p'."


def test_problems_are_divided_by_content_and_the_taskset_takes_its_arguments() -> None:
    task = load("nano-words")
    assert [len(task.examples(split)) for split in SPLITS] == [12, 2, 2]
    names = [example.id for example in task.examples("train")]
    assert names == [example.id for example in load("nano-words").examples("train")]
    fewer = load("nano-words", arguments={"taskset": {"lists": 3}}, holdout=0)
    assert len(fewer.examples("train")) == 6
    known = {example.id for split in SPLITS for example in task.examples(split)}
    assert {example.id for example in fewer.examples("train")} < known
    assert len(load("nano-words", limit=5, holdout=0).examples("train")) == 5


def test_other_rewards_count_as_0_and_1_when_told() -> None:
    task = load("nano-words", reward_range=[0.25, 0.5])
    example = find(task, "zorka : p m z")
    assert [play(task, example, answer)[1].score for answer in ("a b c d e", "a", "z m p")] == [0, 0, 1]
    with pytest.raises(RecipeError, match=r"reward_range=.*the first reward must be less than the second"):
        load("nano-words", reward_range=[1, 1])


# Turns and tools ---------------------------------------------------------------------------------------------------------


def test_an_environment_asks_turn_by_turn() -> None:
    task = load("nano-turns", limit=8)
    assert dict(task.seed_texts) == {"system": "Answer the question."}
    example = next(each for each in task.examples("train") if each.data["problem"].values["name"] == "exchange 0")
    asked, feedback = play(task, example, "m p", "z")
    first = {"role": "user", "content": "zorka : p m"}
    second = {"role": "user", "content": "fonrax : z p"}
    assert [each.messages for each in asked] == [[first], [first, {"role": "assistant", "content": "m p"}, second]]
    assert feedback.score == 0.5
    assert "It took 2 answers and ended by 'user_closed'." in feedback.text
    asked, feedback = play(task, example, "stop")  # a stop condition of the task
    assert (len(asked), feedback.score) == (1, 0)
    asked, feedback = play(load("nano-turns", limit=8, arguments={"player": {"max_turns": 1}}), example, "m p")
    assert (len(asked), feedback.score) == (1, 0.5)


def test_tools_are_described_called_and_answered() -> None:
    task = load("nano-tools", holdout=0)
    example = find(task, "open 2")
    asked, feedback = play(task, example, call(2), "blue")
    system, question = asked[0].messages
    assert '{"name": "open", "description": "Look into a drawer.", "parameters": {' in system["content"]
    assert question == {"role": "user", "content": "open 2"}
    assert asked[1].messages[2:] == [
        {"role": "assistant", "content": '<tool_call>{"name": "open", "arguments": {"drawer": 2}}</tool_call>'},
        {"role": "user", "content": "<tool_response>\nblue\n</tool_response>"},
    ]
    assert feedback.score == 1
    assert "extra took 0, found gave 1 of 1" in feedback.text.replace("-0", "0")


@pytest.mark.parametrize(
    ("first", "result"),
    [
        (call(1), "nothing"),
        (call(11), "there is no drawer 11"),
        (call('"x"'), "validation error"),
        (call(2, "shut"), "error: there is no tool 'shut'"),
        (call(1) + call(2), "nothing\n</tool_response>\n<tool_response>\nblue"),
    ],
)
def test_what_tools_say_to_wrong_calls_is_shown(first: str, result: str) -> None:
    task = load("nano-tools", holdout=0)
    asked, _ = play(task, find(task, "open 2"), first, "blue")
    assert result in asked[1].messages[-1]["content"]


def test_tools_of_one_rollout_know_nothing_of_another() -> None:
    task = load("nano-tools", holdout=0)
    everybody_asks = asyncio.Barrier(2)
    shown: dict[int, str] = {}

    async def play_one(drawer: int) -> Feedback:
        turn = 0

        async def ask(asked: Ask) -> str:
            nonlocal turn
            turn += 1
            shown[drawer] = asked.messages[-1]["content"]
            await everybody_asks.wait()  # both rollouts are under way in every turn
            return call(drawer) if turn == 1 else "red"

        return await task.rollout(find(task, f"open {drawer}"), task.seed_texts, ask)

    async def play_both() -> list[Feedback]:
        return await asyncio.wait_for(asyncio.gather(play_one(0), play_one(1)), 60)

    first, second = asyncio.run(play_both())
    assert ["red" in shown[0], "green" in shown[1]] == [True, True]
    for feedback in (first, second):  # the state of the rollout: one drawer was opened
        assert "extra took 0," in feedback.text.replace("-0,", "0,")


def test_a_rollout_that_is_cancelled_cleans_up_its_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastslow.tasks.adapters.verifiers_env.taskset import Tools

    task = load("nano-tools", holdout=0)
    closed: list[Tools] = []
    close = Tools.close

    async def watched(self: Tools) -> None:
        closed.append(self)
        await close(self)

    monkeypatch.setattr(Tools, "close", watched)
    played = scripted_rollout(task, find(task, "open 2"), [call(1)])  # cancelled at its second question
    assert (len(played.asks), played.feedback) == (2, None)
    assert len(closed) == 1


def test_a_penalty_lowers_the_score_and_a_broken_call_is_explained() -> None:
    task = load("nano-tools", holdout=0)
    example = find(task, "open 2")
    _, wasteful = play(task, example, call(1), call(2), "blue")
    assert wasteful.score == pytest.approx((0.5 + 0.5) / 1.5)  # from -0.5, the worst, to 1, the best
    assert "extra took 0.5, found gave 1 of 1" in wasteful.text
    broken = '<tool_call>{"name": "open"</tool_call>'
    _, feedback = play(task, example, broken)
    assert feedback.score == pytest.approx(0.5 / 1.5)
    assert f"'open 2' was answered with '{broken}', which is no tool call.\n{WRITE_CALLS}" in feedback.text


# Refusals ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "no-such-thing",
            {},
            "'no-such-thing': there is no module 'no_such_thing' installed; install the environment's",
        ),
        ("nano-turns", {}, "'nano-turns': it has no end of problems; say with the option limit how many to take"),
        (
            "nano-words",
            {"arguments": {"taskset": {"list": 3}}},
            "'nano-words': its arguments are not right: taskset.list: ",
        ),
        ("nano-words", {"arguments": {"agent": {"max_output_tokens": 9}}}, "max_output_tokens cannot be kept to; use"),
        ("nano-words", {"arguments": {"agent": {"harness": {"id": "codex"}}}}, "its agent is the program 'codex'"),
        ("nano-words", {"arguments": {"id": "user-sim"}}, r"it has 2 agents \(assistant, user\); expected one"),
        ("nano-words", {"limit": 1}, "'nano-words' has too few problems to hold some out and still train"),
        (
            "nano-refused",
            {"arguments": {"taskset": {"kind": "judge"}}},
            "its judge .* needs an API key; set NANO_JUDGE_KEY",
        ),
        ("nano-refused", {"arguments": {"taskset": {"kind": "image"}}}, "requires image 'ubuntu'"),
        ("nano-refused", {"arguments": {"taskset": {"kind": "picture"}}}, "but the policy reads text only"),
        ("nano-refused", {"arguments": {"taskset": {"kind": "broken"}}}, r"cannot be loaded with .*\(OSError: disk\)"),
        ("nano-classic", {}, r"it is written for verifiers before 0.4, .*pip install 'verifiers<0.4'"),
    ],
)
def test_what_cannot_be_played_is_refused_with_a_reason(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        load(name, **options)


def test_a_package_that_an_environment_lacks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the public wordle lacks nltk and textarena."""
    (tmp_path / "lacks_a_package.py").write_text(
        "import verifiers as vf\nimport nothing_of_that_name\ndef load_environment():\n    return vf.Environment()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TaskError, match="No module named 'nothing_of_that_name'") as refused:
        load("lacks-a-package")
    assert "before 0.4" not in str(refused.value)


def test_what_fails_in_a_rollout_is_raised() -> None:
    task = load("nano-refused", arguments={"taskset": {"kind": "crash"}}, holdout=0)
    with pytest.raises(TaskError, match=r"the environment failed: .*KeyError"):
        scripted_rollout(task, task.examples("train")[0], ["x"])


# Training ----------------------------------------------------------------------------------------------------------------


def trained(folder: Path, model: str | Path, task: dict[str, Any], method: str = "rl", **changes: Any) -> RunFolder:
    recipe = build_recipe(
        {
            "method": method,
            "model": str(model),
            "task": task,
            "slow": {"steps": 2, "problems": 4, "group": 8, "microbatch": 32, "learning_rate": 1e-4, "kl": 0.0},
            "sampling": {"max_tokens": 6},
            "evaluation": {"every": 2, "problems": 2, "k": 1},
            "output": {"checkpoint_every": 2},
            **changes,
        }
    )
    return RunFolder.open(train(recipe, folder))


def test_one_question_trains_and_the_environments_words_reach_the_contexts(tmp_path: Path) -> None:
    fast = {"population": 2, "cycle": 2, "anchors": 4, "budget": 24, "optimizer": {"proposals": 2, "proposer": "full"}}
    run = trained(tmp_path / "run", "nano", {"name": "verifiers/nano-words"}, "fst", fast=fast)
    assert sum(row["trained_rows"] for row in run.rows("metrics")) > 0
    texts = [record["texts"]["system"] for data in run.cycles() for record in data["contexts"]]
    assert any(rule in text for rule in RULES for text in texts)


def test_turns_train(tmp_path: Path) -> None:
    model = tiny.save(tmp_path / "model", ["p", "m", "z"])
    task = {"name": "verifiers/nano-turns", "limit": 8, "holdout": 0.25}
    run = trained(tmp_path / "run", model, task, sampling={"max_tokens": 1})
    assert all(row["trained_rows"] > 0 and row["grad_norm"] > 0 for row in run.rows("metrics"))


def test_tool_calls_train(tmp_path: Path) -> None:
    model = tiny.save(tmp_path / "model", ["red", "green", call(0), call(1)])
    task = {"name": "verifiers/nano-tools", "limit": 4, "holdout": 0.25}
    run = trained(tmp_path / "run", model, task, sampling={"max_tokens": 1})
    assert all(row["trained_rows"] > 0 and row["grad_norm"] > 0 for row in run.rows("metrics"))
