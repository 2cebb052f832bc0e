"""Agents that are functions and agents that are programs, played by rounds and in flight, and what they cost if they fail."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import outcome, recipe_of, resume, run
from fake_service import FakeService, Server
from gateway_helpers import PLAIN, make_tokenizer
from lengthy_engine import LengthyEngine
from rollout_helpers import ScriptedEngine

from fastslow.base.errors import RecipeError, TaskError
from fastslow.engine.tinker.engine import TinkerEngine
from fastslow.models.chat import ChatFormat
from fastslow.models.tokenizer import Described
from fastslow.recipe import GradingRecipe, Recipe, build_recipe
from fastslow.records import Context, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.sandbox.box import Box
from fastslow.sandbox.runner import SandboxError
from fastslow.tasks.adapters.agent import AgentTask
from fastslow.tasks.registry import build_task

ROWS = [{"question": f"tea {word}?", "answer": word} for word in ("one", "two", "three", "no")]
AGENTS = """
import asyncio, builtins, json, os, threading, time, urllib.request

def post(base_url, api_key, messages, timeout=None, **more):
    head = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, head)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.load(answer)["choices"][0]["message"]

def talk(problem, base_url, api_key, turns=3):
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": problem["question"]}]
    for turn in range(turns):
        messages += [post(base_url, api_key, messages), {"role": "user", "content": f"go on {turn}"}]
    return messages

def by_length(problem, base_url, api_key):
    return min(1, len(talk(problem, base_url, api_key)[2]["content"]) / 60), "say more"

def looks_first(problem, client):
    names = [each.id for each in client.models.list()]
    assert client.models.retrieve(names[-1]).id == names[-1]
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": "x"}]
    client.chat.completions.create(model=names[-1], messages=messages)
    return 1.0

def sync(problem, base_url, api_key):
    return len(talk(problem, base_url, api_key)) / 16, "say more"

async def asynchronous(problem, client):
    answer = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": problem["question"]}])
    return {"score": 1.0, "feedback": answer.choices[0].message.content}

def uneven(problem, base_url, api_key):
    talk(problem, base_url, api_key, turns=len(problem["question"]) % 3 + 1)
    return 1.0

def lengthy(problem, base_url, api_key):
    said = [each["content"] for each in talk(problem, base_url, api_key, turns=2) if each["role"] == "assistant"]
    return sum(each.startswith("long") for each in said) / 2, "say long"

def text(problem, base_url, api_key):
    return talk(problem, base_url, api_key, turns=1)[-2]["content"]

def grade(answer, row):
    return float(row["answer"] in answer), f"{answer} for {row['answer']}"

def crashes(problem, base_url, api_key):
    talk(problem, base_url, api_key, turns=1)
    raise ValueError("the secret is out")

class Silent(Exception):
    def __str__(self):
        raise ValueError("no words")

def raised(problem):
    kinds = {"CancelledError": asyncio.CancelledError, "Silent": Silent}
    return kinds.get(problem["raises"]) or getattr(builtins, problem["raises"])

def leaves(problem, base_url, api_key):
    talk(problem, base_url, api_key, turns=1)
    raise raised(problem)

async def leaves_politely(problem, base_url, api_key):
    leaves(problem, base_url, api_key)

def crashes_at_once(problem):
    raise ValueError("no such module")

def hangs(problem, base_url, api_key):
    talk(problem, base_url, api_key, turns=1)
    time.sleep(60)

async def hangs_politely(problem, base_url, api_key):
    talk(problem, base_url, api_key, turns=1)
    await asyncio.sleep(60)

def greedy(problem, base_url, api_key):
    talk(problem, base_url, api_key, turns=99)

def content(problem, base_url, api_key):
    post(base_url, api_key, [{"role": "system", "content": problem["question"]}, {"role": "user", "content": "x"}])
    return 1.0

def strange(row):
    return 1.0

def parallel(problem, base_url, api_key):
    found = []
    def one(number):
        found.append(post(base_url, api_key, [{"role": "user", "content": f"{problem['question']} {number}"}]))
    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    [each.start() for each in threads]
    [each.join() for each in threads]
    return len(found) / 4

def compound(problem, base_url, api_key):
    plan = post(base_url, api_key, [{"role": "user", "content": "plan"}], model="policy/planner")
    post(base_url, api_key, [{"role": "user", "content": plan["content"]}], model="policy/writer")
    return 1.0

def late(problem, base_url, api_key):
    talk(problem, base_url, api_key, turns=1)
    def again():
        time.sleep(0.2)
        problem["later"].append(post(base_url, api_key, [{"role": "user", "content": "x"}]))
    threading.Thread(target=again, daemon=True).start()
    return 1.0

def impatient(problem, base_url, api_key):
    # It gives up before the first answer is there and asks again, as clients with a time limit do.
    messages = [{"role": "user", "content": problem["question"]}]
    for timeout in (0.3, None):
        try:
            messages.append(post(base_url, api_key, messages, timeout=timeout))
        except OSError:
            continue
    messages += [{"role": "user", "content": "go on"}]
    post(base_url, api_key, messages)
    return 1.0

def say_yes(answer, row):
    return float(answer == "yes"), "" if answer == "yes" else "say yes"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    (tmp_path / "agents.py").write_text(AGENTS)
    return tmp_path


def make(agent: str | None = None, **options: Any) -> AgentTask:
    given = {"agent": f"agents.py:{agent}"} if agent else {}
    settings = {"path": "rows.jsonl", "holdout": 0, "components": {"system": "be kind"}, **given, **options}
    task = build_task(build_recipe({"model": "none", "task": {"name": "agent", **settings}}))
    assert isinstance(task, AgentTask)
    return task


def play(task: AgentTask, engine: ScriptedEngine | None = None, **limits: Any) -> list[Rollout]:
    engine = engine or ScriptedEngine(make_tokenizer(PLAIN), rule=lambda prompt: f"tea {len(prompt)} one")
    player = Player(task, engine, ChatFormat(engine.tokenizer), GradingRecipe(**limits))
    pairs = [(example, Context(dict(task.seed_texts))) for example in task.examples("train")]
    return player.play(pairs, Sampling(1.0, 1.0, 30), policy_step=0, seed=0, strict=False)[0]


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_function_is_trained_on_the_tokens_that_were_sampled_for_it(folder: Path, in_flight: bool) -> None:
    sampled: Counter[tuple[int, ...]] = Counter()

    class Remembering(ScriptedEngine):
        async def sample(self, *given: Any, **named: Any) -> Any:
            drawn = await super().sample(*given, **named)
            sampled.update(tuple(each.ids) for each in drawn)
            return drawn

    engine = Remembering(make_tokenizer(PLAIN), rule=lambda prompt: f"tea {len(prompt)} one", in_flight=in_flight)
    rollouts = play(make("sync"), engine)
    assert [rollout.score for rollout in rollouts] == [0.5] * 4
    assert {rollout.feedback.text for rollout in rollouts} == {"say more"}
    assert not any(rollout.faults for rollout in rollouts)
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    assert Counter(tuple(turn.completion.ids) for turn in turns) == sampled
    for rollout in rollouts:
        first, second, third = rollout.turns
        assert list(second.prompt_ids)[: len(first.prompt_ids)] == list(first.prompt_ids)
        whole = [*second.prompt_ids, *second.completion.ids]
        assert list(third.prompt_ids)[: len(whole)] == whole
        assert first.question.endswith(str(rollout.example.data["question"]))
        assert third.question == "go on 1"


def test_rollouts_that_wait_for_their_place_hold_nobody_up(folder: Path) -> None:
    engine = ScriptedEngine(make_tokenizer(PLAIN), rule=lambda prompt: "tea")
    rollouts = play(make("uneven", at_once=2), engine)
    assert [rollout.score for rollout in rollouts] == [1.0] * 4
    assert max(len(texts) for texts, _, _ in engine.calls) == 2
    assert [rollout.score for rollout in play(make("uneven", at_once=1))] == [1.0] * 4


def test_async_functions_graders_and_parallel_calls(folder: Path) -> None:
    rollouts = play(make("asynchronous"))
    assert {rollout.score for rollout in rollouts} == {1.0}
    assert all("tea" in rollout.feedback.text for rollout in rollouts)
    graded = play(make("text", grader="agents.py:grade"))
    assert [rollout.score for rollout in graded] == [float(row["answer"] == "one") for row in ROWS]
    for rollout in play(make("parallel")):
        assert rollout.score == 1.0
        assert len(rollout.turns) == 4


def test_components_by_the_name_of_the_model(folder: Path) -> None:
    task = make("compound", components={"planner": "plan it", "writer": "write it"})
    for rollout in play(task):
        assert [turn.component for turn in rollout.turns] == ["planner", "writer"]
        texts = [make_tokenizer(PLAIN).decode(list(turn.prompt_ids)) for turn in rollout.turns]
        assert ["plan it" in texts[0], "write it" in texts[1], "plan it" in texts[1]] == [True, True, False]


def test_the_seed_text_is_what_the_agent_sends(folder: Path) -> None:
    task = make("sync", components={"system": None})
    assert task.seed_texts == {"system": "be kind"}
    looks_first = make("looks_first", components={"system": None})
    assert looks_first.seed_texts == {"system": "be kind"}
    assert {rollout.score for rollout in play(looks_first)} == {1.0}
    task_of_rows = make("content", components={"system": None})
    assert task_of_rows.seed_texts == {"system": "Answer the question."}  # its own differs from problem to problem
    engine = ScriptedEngine(make_tokenizer(PLAIN), rule=lambda prompt: "tea")
    player = Player(task, engine, ChatFormat(engine.tokenizer))
    example = task.examples("train")[0]
    (rollout,), _ = player.play([(example, Context({"system": "be short"}))], Sampling(), policy_step=0, seed=0)
    prompt = engine.tokenizer.decode(list(rollout.turns[0].prompt_ids))
    assert "be short" in prompt
    assert "be kind" not in prompt
    with pytest.raises(TaskError, match="failed before it asked for an answer: ValueError: no such module"):
        _ = make("crashes_at_once", components={"system": None}).seed_texts


def test_a_crash_a_hang_and_a_limit_cost_their_rollout_and_are_counted(folder: Path) -> None:
    for agent, fault, options in (
        ("crashes", {"agent_crashed": 1}, {}),
        ("hangs", {"agent_hung": 1}, {"seconds": 1.5}),
        ("hangs_politely", {"agent_hung": 1}, {"seconds": 1.5}),
        ("greedy", {"agent_crashed": 1, "agent_limit": 1}, {"turns": 2}),
        ("greedy", {"agent_crashed": 1, "agent_limit": 1}, {"tokens": 20}),
    ):
        started = time.monotonic()
        for rollout in play(make(agent, **options)):
            assert (rollout.score, dict(rollout.faults)) == (0.0, fault)
            assert rollout.turns
            assert rollout.error
            assert "secret" not in rollout.feedback.text
        assert time.monotonic() - started < 30
    for rollout in play(make("crashes_at_once")):  # not the policy's doing
        assert rollout.faults == {"grader": 1}
        assert "the agent failed before it asked the policy: ValueError: no such module" in rollout.error


@pytest.mark.parametrize("kind", ["leaves", "leaves_politely"])
def test_whatever_an_agent_raises_costs_its_rollout(folder: Path, kind: str) -> None:
    task = make(kind)
    raised = ["SystemExit", "KeyboardInterrupt", "CancelledError", "GeneratorExit", "StopIteration", "Silent"]
    rows = [{"question": "tea?", "raises": name} for name in raised]
    example = type(task.examples("train")[0])
    object.__setattr__(task, "_examples", {"train": [example(row["raises"], row) for row in rows]})
    for rollout in play(task):
        assert rollout.faults == {"agent_crashed": 1}
        assert rollout.example.id in rollout.error


def test_turns_that_the_recipe_forbids_are_refused(folder: Path) -> None:
    for rollout in play(make("greedy"), max_turns=2):
        assert len(rollout.turns) == 2
        assert rollout.faults == {"agent_crashed": 1}


def test_answers_that_are_truncated_or_not_of_the_form_are_masked_where_asked(folder: Path) -> None:
    said = "x" * 99
    for options, masked, faults in (
        ({}, [], {"truncated": 1}),
        ({"mask": ["truncated"]}, ["truncated"] * 3, {"truncated": 1, "masked_truncated": 3}),
    ):
        engine = ScriptedEngine(make_tokenizer(PLAIN), rule=lambda prompt: said)
        for rollout in play(make("sync", **options), engine):
            assert list(rollout.feedback.masked) == masked
            assert dict(rollout.faults) == faults
            assert rollout.trained == ([] if masked else [0, 1, 2])


def test_agents_are_trained_with_rollouts_begun_ahead_and_resume_to_the_same_result(folder: Path) -> None:
    task = make("lengthy")
    recipe = recipe_of("rl", evaluation={"every": 0}, sampling={"ahead": 1, "max_tokens": 30})
    whole, _ = run(folder / "whole", recipe, LengthyEngine(rate=0.1), task=task)
    assert whole.state.done
    broken = LengthyEngine(rate=0.1)
    broken.fails_at = 4
    with pytest.raises(RuntimeError, match="power"):
        run(folder / "parts", recipe, broken, task=task)
    resume(folder / "parts", recipe, LengthyEngine(rate=0.1), task=task)
    assert outcome(folder / "parts") == outcome(folder / "whole")
    assert len({row["reward"] for row in outcome(folder / "whole")["metrics"]}) > 1


def test_an_agent_is_trained_through_a_service(folder: Path) -> None:
    tokenizer = make_tokenizer(PLAIN)
    words = [tokenizer(word, add_special_tokens=False)["input_ids"][0] for word in ("tea", "one")]
    server = Server((*words, tokenizer.eos_token_id))
    engine = {"kind": "tinker", "base_url": "http://fake", "rank": 4, "reduction": "sum"}
    recipe = Recipe.model_validate({**recipe_of("fst", evaluation={"every": 0}).model_dump(), "engine": engine})
    service = TinkerEngine(recipe, Described(tokenizer, None, (tokenizer.eos_token_id,)), FakeService(server))  # type: ignore[arg-type]
    loop, _ = run(folder / "run", recipe, service, task=make("by_length"))
    assert loop.state.done
    rows = outcome(folder / "run")["metrics"]
    updated = [row for row in rows if row["grad_norm"]]  # in the others all rewards of each group were equal
    assert updated
    assert all(row["sampler_mismatch"] < 1e-4 for row in updated)


def test_what_an_agent_asks_after_its_end_is_refused(folder: Path) -> None:
    later: list[Any] = []
    rows = [{"question": "tea?", "later": later}]
    task = make("late")
    object.__setattr__(task, "_examples", {"train": [type(task.examples("train")[0])("one", rows[0])]})
    (rollout,) = play(task)
    time.sleep(0.6)
    assert (len(rollout.turns), later) == (1, [])


PROGRAM = """
import json, os, subprocess, sys, urllib.request
row = json.load(sys.stdin)
assert row == json.load(open("problem.json"))
def post(path, key, body):
    head = {"authorization": "Bearer " + os.environ[key], "content-type": "application/json"}
    request = urllib.request.Request(path, json.dumps(body).encode(), head)
    return json.load(urllib.request.urlopen(request))
question = {"model": "m", "messages": [{"role": "user", "content": row["question"]}]}
said = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", "OPENAI_API_KEY", question)
text = said["choices"][0]["message"]["content"]
"""


def program(folder: Path, rest: str, name: str = "program") -> str:
    (folder / f"{name}.py").write_text(PROGRAM + rest)
    return f"{sys.executable} {folder / name}.py"


def test_a_command_asks_the_policy_whatever_address_the_user_has_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As clients of LangChain find their address."""
    for name in ("OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/v1")
    older = 'assert os.environ["OPENAI_API_BASE"] == os.environ["OPENAI_BASE_URL"]; print(1.0)'
    assert {rollout.score for rollout in play(make(command=program(folder, older)))} == {1.0}


def test_a_command_has_its_score_from_its_output_a_file_a_grader_or_tests(folder: Path) -> None:
    (folder / "files").mkdir()
    (folder / "files" / "hello.txt").write_text("hello")
    printed = program(
        folder, 'print("working"); print(json.dumps({"score": 0.5, "feedback": open("hello.txt").read()}))'
    )
    for rollout in play(make(command=printed, folder="files")):
        assert (rollout.score, rollout.feedback.text, rollout.faults) == (0.5, "hello", {})
    written = program(folder, 'open("score.json", "w").write("0.25")', "written")
    assert {rollout.score for rollout in play(make(command=written, result="score.json"))} == {0.25}
    said = program(folder, "print(text)", "said")
    graded = play(make(command=said, grader="agents.py:grade"))
    assert [rollout.score for rollout in graded] == [float(row["answer"] == "one") for row in ROWS]
    tested = program(folder, 'open("text", "w").write(text)', "tested")
    passes = play(make(command=tested, tests="grep one text || (echo no one; exit 1)"))
    assert {rollout.score for rollout in passes} == {1.0}
    fails = play(make(command=tested, tests="grep nine text || (echo nobody said nine; exit 1)"))
    assert {(rollout.score, rollout.feedback.text) for rollout in fails} == {(0.0, "nobody said nine")}


def test_a_command_that_fails_hangs_or_leaves_processes_behind(folder: Path) -> None:
    failing = program(folder, 'sys.exit("secret")', "failing")
    for rollout in play(make(command=failing)):
        assert rollout.faults == {"agent_crashed": 1}
        assert "ended with 1" in rollout.error
        assert "secret" not in rollout.feedback.text
    hanging = program(folder, "import time; time.sleep(60)", "hanging")
    assert all(rollout.faults == {"agent_hung": 1} for rollout in play(make(command=hanging, seconds=2)))
    quiet = "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL"
    sleeper = f'subprocess.Popen(["sleep", "77"], start_new_session=True, {quiet})'
    leaking = program(folder, f"{sleeper}; print(1.0)", "leaking")
    assert all((rollout.score, rollout.faults) == (1.0, {"agent_leaked": 1}) for rollout in play(make(command=leaking)))
    left = [each for each in os.listdir("/proc") if each.isdigit() and b"sleep\0" + b"77" in _command_line(each)]
    assert left == []
    for rollout in play(make(command="exit 3")):
        assert rollout.faults == {"grader": 1}


def test_a_process_that_cannot_be_found_holds_no_rollout_up(folder: Path) -> None:
    asking = program(folder, "", "asking")
    daemon = f"{asking}; env -i setsid sleep 6 & sleep 1; echo 0.5"
    for rollout in play(make(command=daemon, seconds=5)):
        assert (rollout.score, rollout.faults) == (0.5, {"agent_leaked": 1})


def test_what_a_command_writes_is_bounded_and_its_last_line_is_the_score(folder: Path) -> None:
    noisy = program(folder, 'print("working\\n" * 300_000); print(0.5)', "noisy")
    assert {(rollout.score, rollout.error) for rollout in play(make(command=noisy))} == {(0.5, "")}
    huge = program(folder, 'open("score.json", "w").truncate(2**34)', "huge")
    for rollout in play(make(command=huge, result="score.json")):
        assert rollout.faults == {"agent_crashed": 1}
        assert "expected a score as JSON" in rollout.error


def test_a_command_that_is_isolated_reaches_the_policy_and_nothing_else(folder: Path) -> None:
    try:
        Box().close()
    except SandboxError as error:
        pytest.skip(str(error))
    (folder / "files").mkdir()
    rest = """
for name in (ELSEWHERE, "/root/x", "/etc/shadow"):
    assert not os.path.exists(name), name
try:
    urllib.request.urlopen("http://127.0.0.1:1")
except OSError:
    open("score.json", "w").write("0.5")
"""
    (folder / "files" / "program.py").write_text(PROGRAM + rest.replace("ELSEWHERE", repr(str(folder / "rows.jsonl"))))
    options = {"command": "python3 program.py", "folder": "files", "isolated": True}
    for rollout in play(make(**options, result="score.json")):
        assert (rollout.score, dict(rollout.faults), rollout.error) == (0.5, {}, "")
    tested = play(make(**options, tests="pwd; cat problem.json; test -f score.json"))
    assert {rollout.score for rollout in tested} == {1.0}
    assert all(rollout.feedback.text.startswith("/agent\n{") for rollout in tested)
    left = {"command": "python3 program.py; sleep 77 & exit 3", "folder": "files", "isolated": True}
    for rollout in play(make(**left)):
        assert dict(rollout.faults) == {"agent_crashed": 1, "agent_leaked": 1}


def _command_line(process: str) -> bytes:
    try:
        return Path("/proc", process, "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("in_flight", [False, True])
def test_an_answer_that_nobody_waits_for_is_not_trained_and_its_retry_is(folder: Path, in_flight: bool) -> None:
    class Slow(ScriptedEngine):
        async def sample(self, *given: Any, **named: Any) -> Any:
            if not self.calls:
                await asyncio.sleep(1.5)
            return await super().sample(*given, **named)

    engine = Slow(make_tokenizer(PLAIN), rule=lambda prompt: f"tea {prompt.count('assistant')}", in_flight=in_flight)
    rollouts = play(make("impatient"), engine)
    assert len(rollouts) == 4
    for rollout in rollouts:
        assert (rollout.score, rollout.faults) == (1.0, {})
        first, second = rollout.turns
        kept = [*first.prompt_ids, *first.completion.ids]
        assert list(second.prompt_ids)[: len(kept)] == kept


def test_options_that_do_not_fit(folder: Path) -> None:
    for options, words in (
        ({}, "either agent"),
        ({"agent": "sync", "command": "x"}, "either agent"),
        ({"agent": "sync", "tests": "x"}, "belongs to a command"),
        ({"command": "x", "tests": "x", "grader": "agents.py:grade"}, "keep one of them"),
        ({"command": "x", "folder": "nowhere"}, "no folder"),
        ({"command": "x", "readable": ["x"]}, "belongs to isolated"),
        ({"agent": "nobody"}, "nobody"),
        ({"agent": "strange"}, r"\['row'\].*can be given problem, base_url"),
    ):
        with pytest.raises((RecipeError, TaskError), match=words):
            make(**options)


def test_a_run_that_is_interrupted_resumes_to_the_same_result(folder: Path) -> None:
    task = make("text", grader="agents.py:say_yes")
    recipe = recipe_of("fst", evaluation={"every": 0})
    whole, _ = run(folder / "whole", recipe, task=task)
    assert whole.state.done
    broken = FakeEngine()
    broken.fails_at = 5
    with pytest.raises(RuntimeError, match="power"):
        run(folder / "parts", recipe, broken, task=task)
    resume(folder / "parts", recipe, task=task)
    assert outcome(folder / "parts") == outcome(folder / "whole")
    rewards = [row["reward"] for row in outcome(folder / "whole")["metrics"]]
    assert 0 < sum(rewards) < len(rewards)
