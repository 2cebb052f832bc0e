"""Harbor task folders in the sandbox and, by a `docker` that notes how it is called, in containers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fake_runs import outcome, recipe_of, resume, run
from gateway_helpers import TOOLS, make_tokenizer
from rollout_helpers import ScriptedEngine

from fastslow.base.errors import FastSlowWarning, RecipeError, TaskError
from fastslow.models.chat import ChatFormat
from fastslow.recipe import GradingRecipe, build_recipe
from fastslow.records import Context, Rollout, Sampling
from fastslow.rollouts.play import Player
from fastslow.sandbox.box import Box
from fastslow.sandbox.runner import SandboxError
from fastslow.tasks.adapters.harbor import machines
from fastslow.tasks.adapters.harbor.folder import find_folders
from fastslow.tasks.adapters.harbor.task import HarborTask
from fastslow.tasks.registry import build_task

try:
    Box().close()
    BOXES = True
except SandboxError:
    BOXES = False
needs_box = pytest.mark.skipif(not BOXES, reason="this machine has no namespaces")

GREETING = """
if grep -qs hello /app/greeting.txt; then echo 1 > /logs/verifier/reward.txt; else echo "no hello in it"; echo 0 > \
/logs/verifier/reward.txt; fi
"""


def write_task(
    folder: Path, *, tests: str = GREETING, toml: str = "", dockerfile: str | None = None, **files: str
) -> Path:
    for name, text in {
        "instruction.md": "<!-- harbor-canary 123 -->\n\nWrite hello to greeting.txt.\n",
        "task.toml": 'version = "1.0"\n[metadata]\nauthor_name = "me"\n' + toml,
        "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\n" if dockerfile is None else dockerfile,
        "tests/test.sh": "#!/bin/bash\n" + tests,
        **files,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def make(path: Path, **options: Any) -> HarborTask:
    settings = {"path": str(path), "holdout": 0, "runtime": "sandbox", **options}
    task = build_task(build_recipe({"model": "none", "task": {"name": "harbor", **settings}}))
    assert isinstance(task, HarborTask)
    return task


def call(command: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': 'shell', 'arguments': {'command': command}})}\n</tool_call>"


def saying(*texts: str) -> Callable[[str], str]:
    """A policy that says these in turn, then nothing."""
    return lambda prompt: [*texts, "done", "done"][min(prompt.count("<|im_start|>assistant") - 1, len(texts))]


def play(task: HarborTask, rule: Callable[[str], str], **limits: Any) -> tuple[list[Rollout], Sequence[str]]:
    engine = ScriptedEngine(make_tokenizer(TOOLS), rule=rule)
    player = Player(task, engine, ChatFormat(engine.tokenizer), GradingRecipe(**limits))
    pairs = [(example, Context(dict(task.seed_texts))) for example in task.examples("train")]
    rollouts = player.play(pairs, Sampling(1.0, 1.0, 400), policy_step=0, seed=0, strict=False)[0]
    return rollouts, [engine.tokenizer.decode(list(turn.prompt_ids)) for each in rollouts for turn in each.turns]


@needs_box
def test_the_policy_works_in_a_shell_and_the_tests_score_what_it_leaves(tmp_path: Path) -> None:
    task = make(write_task(tmp_path / "greet"))
    rollouts, prompts = play(task, saying(call("pwd; ls / /tests"), call("echo hello > greeting.txt; exit 3")))
    (rollout,) = rollouts
    assert (rollout.score, dict(rollout.faults), len(rollout.turns)) == (1.0, {}, 3)
    assert rollout.turns[0].question == "Write hello to greeting.txt."  # without the benchmark's mark
    assert "/app\n" in prompts[1]
    assert "cannot access '/tests'" in prompts[1]  # they come when the agent has finished
    assert "[exit code 3]" in prompts[2]
    assert not any(word in "".join(prompts) for word in ("grep -qs", "author_name", str(tmp_path)))
    (rollout,), _ = play(task, saying("I have done it."))
    assert (rollout.score, rollout.feedback.text) == (0.0, "no hello in it")


@needs_box
def test_a_dockerfile_of_plain_steps_is_carried_out(tmp_path: Path) -> None:
    dockerfile = (
        "# a comment\nFROM python:3.12-slim\nARG NAME=data\nENV PLACE=/srv/$NAME KIND=x\nRUN mkdir -p $PLACE && \\\n"
        "    echo built > $PLACE/made\nWORKDIR /srv\nWORKDIR work\n"
        "COPY --chown=1:1 given.txt renamed.txt\nCOPY more /srv/more/\n"
        'CMD ["bash"]\n'
    )
    rewards = 'echo "{\\"reward\\": 0.5, \\"other\\": 3}" > /logs/verifier/reward.json\n'
    tests = rewards + "env\necho 1 > /logs/verifier/reward.txt\n"
    folder = write_task(
        tmp_path / "plain",
        dockerfile=dockerfile,
        tests=tests,
        toml='[environment]\nenv = { TOKEN = "${NO_SUCH:-sesame}" }\n[verifier]\nenv = { STRICT = "1" }\n',
        **{"environment/given.txt": "given", "environment/more/deep.txt": "deep"},
    )
    rollouts, prompts = play(
        make(folder), saying(call("pwd; cat renamed.txt /srv/more/deep.txt $PLACE/made; echo $KIND $TOKEN"))
    )
    assert "/srv/work\ngivendeepbuilt\nx sesame" in prompts[1]
    (rollout,) = rollouts
    assert rollout.score == 0.5  # reward.json before reward.txt
    assert "STRICT=1" in rollout.feedback.text


@needs_box
def test_what_was_there_before_the_tests_is_no_reward(tmp_path: Path) -> None:
    cheat = call("mkdir -p /tests /logs/verifier; echo 1 > /logs/verifier/reward.txt; echo 'exit 0' > /tests/test.sh")
    for tests, score, fault in (
        ("echo no reward; exit 1\n", 0.0, {"no_reward": 1}),
        ("echo no reward\n", 0.0, {"grader": 1}),
        ("echo 7 > /logs/verifier/reward.txt\n", 0.0, {"grader": 1}),
        ("sleep 30; echo 1 > /logs/verifier/reward.txt\n", 0.0, {"tests_hung": 1}),
    ):
        folder = write_task(tmp_path / "cheat", tests=tests, toml="[verifier]\ntimeout_sec = 1.0\n")
        (rollout,), _ = play(make(folder), saying(cheat))
        assert (rollout.score, dict(rollout.faults)) == (score, fault)


@needs_box
def test_an_agent_that_takes_too_long_or_too_many_turns_is_scored_for_what_it_left(tmp_path: Path) -> None:
    folder = write_task(tmp_path / "slow", toml="[agent]\ntimeout_sec = 1.5\n")
    (rollout,), _ = play(make(folder), saying(call("echo hello > greeting.txt"), call("sleep 30")))
    assert (rollout.score, dict(rollout.faults)) == (1.0, {"agent_hung": 1})
    (rollout,), prompts = play(
        make(folder, command_seconds=0.2),
        saying(call("echo hello > greeting.txt; sleep 9"), "<tool_call>{}</tool_call>"),
    )
    assert (rollout.score, dict(rollout.faults)) == (1.0, {})
    assert "[ended after 0.2 seconds]" in prompts[1]
    (rollout,), _ = play(make(folder, turns=2), lambda prompt: call("true"))
    assert (rollout.score, len(rollout.turns), dict(rollout.faults)) == (0.0, 2, {"agent_limit": 1})


PROGRAM = """
import json, os, sys, urllib.request
instruction = sys.stdin.read()
assert instruction == open("/agent/instruction.md").read()
head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": instruction}]}).encode()
request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, head)
text = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
open("greeting.txt", "w").write(text)
try:
    urllib.request.urlopen("http://127.0.0.1:1")
except OSError as error:
    print(error)
"""


@needs_box
def test_a_command_reaches_the_policy_from_the_machine_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "agent.py").write_text(PROGRAM)
    folder = write_task(tmp_path / "tasks" / "greet")
    task = make(folder, command="python3 /agent/agent.py", folder=str(tmp_path / "files"))
    (rollout,), _ = play(task, lambda prompt: "hello you")
    assert (rollout.score, dict(rollout.faults), len(rollout.turns)) == (1.0, {}, 1)
    failing = make(folder, command="python3 /agent/agent.py; sleep 99 & exit 3", folder=str(tmp_path / "files"))
    (rollout,), _ = play(failing, lambda prompt: "hello you")
    assert (rollout.score, dict(rollout.faults)) == (1.0, {"agent_crashed": 1, "agent_leaked": 1})
    (rollout,), _ = play(make(folder, command="exit 1"), lambda prompt: "")
    assert dict(rollout.faults) == {"grader": 1}


def test_tasks_that_do_not_fit_are_named_with_the_reason(tmp_path: Path) -> None:
    write_task(tmp_path / "fits" / "deep")
    for name, dockerfile, toml, reason in (
        ("bare", "FROM\n", "", "its Dockerfile begins with the image"),
        (
            "nothing",
            "FROM --platform=linux/amd64 ubuntu:24.04\nCOPY\n",
            "",
            "its Dockerfile has COPY and nothing behind it",
        ),
        ("installs", "FROM ubuntu\nRUN apt-get update && apt-get install -y gcc\n", "", "installs programs"),
        ("image", "FROM ghcr.io/who/what:1\n", "", "begins with the image ghcr.io/who/what:1"),
        ("named", "", '[environment]\ndocker_image = "postgres:16"\n', "needs the image postgres:16"),
        ("stages", "FROM ubuntu AS a\nFROM debian\n", "", "several stages"),
        ("user", "FROM ubuntu\nUSER app\n", "", "names a user"),
        ("agent", "FROM ubuntu\n", '[agent]\nuser = "app"\n', "its agent is the user app"),
        ("gpu", "FROM ubuntu\n", "[environment]\ngpus = 1\n", "needs a GPU"),
        ("fetches", "FROM ubuntu\nADD https://x.org/y /y\n", "", "fetches files"),
        ("starts", 'FROM ubuntu\nENTRYPOINT ["/start"]\n', "", "ENTRYPOINT"),
        ("steps", "FROM ubuntu\n", '[[steps]]\nname = "one"\n', "several steps"),
        ("separate", "FROM ubuntu\n", '[verifier]\nenvironment_mode = "separate"\n', "an environment of their own"),
        ("windows", "FROM ubuntu\n", '[environment]\nos = "windows"\n', "its environment is windows"),
        ("health", "FROM ubuntu\n", '[environment.healthcheck]\ncommand = "true"\n', "health check"),
    ):
        folder = write_task(tmp_path / name, dockerfile=dockerfile, toml=toml)
        with pytest.raises(TaskError, match=f"none of the tasks.*fits the sandbox.*{reason}"):
            make(folder)
    with pytest.warns(
        FastSlowWarning, match=r"15 of the tasks .* are left out: agent: its agent is the user app; .*gpu: it needs"
    ):
        assert [example.id for example in make(tmp_path).examples("train")] == ["fits/deep"]
    assert make(tmp_path / "installs", installed=True).examples("train")
    write_task(tmp_path / "compose", **{"environment/docker-compose.yaml": "services: {}"})
    with pytest.raises(TaskError, match="docker-compose"):
        make(tmp_path / "compose")
    for path, words in (("nowhere", "no folder"), ("fits/deep/tests", "no task.toml")):
        with pytest.raises(TaskError, match=words):
            make(tmp_path / path)
    write_task(tmp_path / "broken", toml="[agent]\ntimeout_sec = -1\n")
    with pytest.raises(TaskError, match=r"agent.timeout_sec: .*correct it"):
        make(tmp_path / "broken")
    with pytest.raises(RecipeError, match="folder belongs to a command"):
        make(tmp_path / "fits", folder="x")


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("uvx \\\n  --with pytest==8.4.1 \\\n  pytest /tests/test_outputs.py", False),
        ("apt-get update && apt-get install -y curl", False),
        ("curl -LsSf https://astral.sh/uv/install.sh | sh", False),
        ("curl -s http://localhost:8080/health", True),
        ("# pip install pytest", True),
        ("npm test", True),
    ],
)
def test_tests_that_install_programs_need_the_network_or_a_machine_that_has_them(
    tmp_path: Path, line: str, fits: bool
) -> None:
    """Without, they would fail whatever the agent did, and the score would be 0."""
    folder = write_task(tmp_path / "installs", tests=f"{line}\necho 1 > /logs/verifier/reward.txt\n")
    if not fits:
        with pytest.raises(TaskError, match=r"its tests install programs \('(uvx|apt-get|curl)"):
            make(folder)
    for option in ("installed", "network") if not fits else ("installed",):
        assert make(folder, **{option: True}).examples("train")
    if not fits:
        write_task(folder, toml="[environment]\nallow_internet = false\n", tests=f"{line}\n")
        with pytest.raises(TaskError, match="its tests install programs"):
            make(folder, network=True)


@needs_box
def test_an_image_of_python_has_python(tmp_path: Path) -> None:
    base = 'FROM public.ecr.aws/docker/library/python:3.12-slim\nWORKDIR /app\nRUN python -c \'open("made", "w")\'\n'
    folder = write_task(
        tmp_path / "python", dockerfile=base, tests="test -e made && echo 1 > /logs/verifier/reward.txt"
    )
    (rollout,), _ = play(make(folder), saying("done"))
    assert (rollout.score, dict(rollout.faults)) == (1.0, {})


def test_splits_and_names(tmp_path: Path) -> None:
    for name in "abcdefghij":
        write_task(tmp_path / name)
    task = make(tmp_path, holdout=0.2, test_path=str(tmp_path / "a"))
    sizes = {split: len(task.examples(split)) for split in ("train", "validation", "test")}
    assert sizes == {"train": 8, "validation": 2, "test": 1}
    assert find_folders(str(tmp_path / "c"))[0].name == "c"


DOCKER = f"""#!{sys.executable}
import json, os, subprocess, sys
given, state = sys.argv[1:], os.environ["FAKE_DOCKER"]
with open(state + "/calls", "a") as file:
    file.write(json.dumps(given) + "\\n")
if given[:2] == ["image", "inspect"]:
    sys.exit(not os.path.exists(state + "/built"))
if given[0] == "build":
    open(state + "/built", "w").close()
if given[0] == "exec":
    rest, variables = given[1:], {{}}
    while rest[0].startswith("--"):
        if rest[0] == "--interactive":
            rest = rest[1:]
            continue
        if rest[0] == "--env":
            name, value = rest[1].split("=", 1)
            variables[name] = value
        rest = rest[2:]
    command = rest[3].replace("/logs", state + "/logs").replace("/tests", state + "/tests").replace("/app", state + "/app")
    command = command.replace("cd /", "cd " + state)
    if "tar -xf" in rest[3]:
        command += "; sed -i 's#/logs#" + state + "/logs#g; s#/app#" + state + "/app#g' " + state + "/tests/test.sh"
    os.makedirs(state + "/app", exist_ok=True)
    sys.exit(subprocess.run([rest[1], rest[2], command], cwd=state + "/app", env={{**os.environ, **variables}}).returncode)
"""


def test_a_container_is_built_started_used_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "bin" / "docker").write_text(DOCKER)
    (tmp_path / "bin" / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_DOCKER", str(tmp_path / "state"))
    monkeypatch.setenv("SECRET", "sesame")
    machines.find_engine.cache_clear()
    toml = (
        '[environment]\ncpus = 2\nmemory_mb = 2048\nworkdir = "/app"\nenv = { TOKEN = "${SECRET}" }\n'
        '[agent]\nuser = "worker"\n[verifier]\nuser = "root"\nenv = { STRICT = "1" }\n'
    )
    folder = write_task(tmp_path / "greet", toml=toml, dockerfile="FROM ghcr.io/who/what:1\n")
    try:
        task = make(folder, runtime="auto")
    finally:
        machines.find_engine.cache_clear()
    assert task.runtime == "docker"
    for _ in range(2):
        (rollout,), _ = play(task, saying(call("echo hello > greeting.txt; echo $TOKEN")))
        assert (rollout.score, dict(rollout.faults), rollout.error) == (1.0, {}, "")
    calls = [json.loads(line) for line in (tmp_path / "state" / "calls").read_text().splitlines()]
    kinds = [each[0] for each in calls]
    assert (kinds.count("build"), kinds.count("run"), kinds.count("rm")) == (1, 2, 2)
    build = next(each for each in calls if each[0] == "build")
    assert build[-1] == str(folder / "environment")
    started = next(each for each in calls if each[0] == "run")
    assert {"--detach", "--rm", "--init"} <= set(started)
    for pair in (("--cpus", "2.0"), ("--memory", "2048m"), ("--env", "TOKEN=sesame")):
        assert pair in pairwise(started)
    assert "--network" not in started
    agent = next(each for each in calls if "echo hello" in each[-1])
    assert ("--user", "worker") in pairwise(agent)
    assert ("--workdir", "/app") in pairwise(agent)
    tests = next(
        each for each in calls if each[-1].endswith("/tests/test.sh") and each[0] == "exec" and "chmod" not in each[-1]
    )
    assert ("--env", "STRICT=1") in pairwise(tests)
    assert next(each for each in calls if each[0] == "rm")[1:] == ["--force", started[started.index("--name") + 1]]
    closed = write_task(tmp_path / "closed", toml='[environment]\nnetwork_mode = "no-network"\n')
    play(make(closed, runtime="docker"), saying())
    calls = [json.loads(line) for line in (tmp_path / "state" / "calls").read_text().splitlines()]
    started = [each for each in calls if each[0] == "run"][-1]
    assert ("--network", "none") in pairwise(started)
    with pytest.raises(TaskError, match="it has no network, and the agent's command must reach the policy"):
        make(closed, runtime="docker", command="true")


@needs_box
def test_a_run_on_tasks_that_is_interrupted_resumes_to_the_same_result(tmp_path: Path) -> None:
    for name in "abcd":
        write_task(tmp_path / "tasks" / name, tests='echo 0.5 > /logs/verifier/reward.txt; echo "say more"\n')
    task = make(tmp_path / "tasks")
    sizes = {"steps": 2, "problems": 1, "group": 2, "microbatch": 2}
    recipe = recipe_of("rl", slow=sizes, evaluation={"every": 0})
    run(tmp_path / "whole", recipe, task=task)
    broken = FakeEngine()
    broken.fails_at = 2
    with pytest.raises(RuntimeError, match="power"):
        run(tmp_path / "parts", recipe, broken, task=task)
    resume(tmp_path / "parts", recipe, task=task)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    assert {row["reward"] for row in outcome(tmp_path / "whole")["metrics"]} == {0.5}
