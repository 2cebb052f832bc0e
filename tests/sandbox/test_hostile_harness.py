"""Evolving code as the attacker: what it may get at, forge, break or leave behind. Every attempt is a whole rollout."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hostile_harness
import pytest
from processes import descendants, gone, parents

from fastslow.base.world import wait_for
from fastslow.records import Example, Feedback
from fastslow.sandbox import SandboxError, harness, runner
from fastslow.tasks.base import Ask, Split
from fastslow.tasks.harness import HARNESS, HarnessTask, Limits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is for Linux")
SECRET, ANSWER = "hunter2", "4711-answer"
FAULTS = {
    "forged: a score": "harness_output",
    "forged: the end": "harness_crashed",
    "forged: a refusal of the machine": "harness_output",
    "forged: a fault of the grader": "harness_output",
    "forged: an ask with more in it": "harness_output",
    "forged: deep arguments": "harness_output",
    "forged: a deep message": "harness_output",
    "forged: blank lines": "harness_output",
    "forged: an endless line": "harness_output",
    "forged: the beginning of a line": "harness_output",
    "forged: a closed channel": "harness_hung",
    "forged: a quick end": "harness_crashed",
    "bombs: memory": "harness_memory",
    "bombs: memory at once": "harness_memory",
    "bombs: work": "harness_hung",
    "bombs: work that ignores signals": "harness_hung",
    "bombs: sleep": "harness_hung",
    "bombs: calls of another machine": "harness_crashed",
    "bombs: stopping itself": "harness_hung",
    "bombs: a crash": "harness_crashed",
    "bombs: an abort": "harness_crashed",
}
"""How some of them are counted."""


class Guarded(HarnessTask):
    """A task whose answer nobody but the grader knows."""

    limits = Limits(seconds=2)

    def __init__(self) -> None:
        super().__init__()
        self.graded: dict[str, str] = {}

    def examples(self, split: Split) -> list[Example]:
        return [Example(name, {"answer": ANSWER}) for name in ("first", *hostile_harness.ATTACKS)]

    def problem(self, example: Example) -> Any:
        return {"question": "what is the answer?"}

    def tools(self, example: Example) -> Mapping[str, Any]:
        return {"calculate": calculate}

    def grade(self, example: Example, answer: str) -> Feedback:
        self.graded[example.id] = answer
        return Feedback(float(answer == ANSWER), "no")


def calculate(expression: str) -> int:
    one, other = expression.split(" * ")
    return int(one) * int(other)


async def mumble(asked: Ask) -> str:
    return "mumble"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("host")
    for parent in (folder, folder.parent):  # only the walls are to keep anybody out
        parent.chmod(0o755)
    (folder / "secret").write_text(SECRET)
    name = f"fastslow-harness-{os.getpid()}"
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local,
        subprocess.Popen(["sleep", "600"]) as victim,
    ):
        local.bind(f"\0{name}")
        local.listen()
        for listening in (server, local):
            listening.setblocking(False)
        patch.setenv("MY_TOKEN", SECRET)
        yield {
            "pid": os.getpid(),
            "victim": victim.pid,
            "port": server.getsockname()[1],
            "socket": name,
            "home": str(Path.home()),
            "repository": str(Path(__file__).parents[2]),
            "packages": sysconfig.get_path("purelib"),
            "grader": str(Path(__file__)),
            "secret": str(folder / "secret"),
            "wrong": "not the answer",
            "answer": ANSWER[::-1],  # so that the code does not hold what it looks for
        }
        assert victim.poll() is None
        for listening in (server, local):
            with pytest.raises(BlockingIOError):
                listening.accept()
        assert [path.name for path in folder.iterdir()] == ["secret"]
        victim.kill()


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def played(
    host: dict[str, Any], request: pytest.FixtureRequest
) -> Iterator[tuple[Guarded, dict[str, Feedback], dict[int, str]]]:
    """All attacks at once, with the walls of one kind of machine; and the processes that were there before."""
    layers = (request.param, "seccomp")
    try:
        if not runner.run_code("", layers=layers, seconds=20).ok:
            pytest.skip(f"no {request.param} on this machine")
    except SandboxError as error:
        pytest.skip(f"no {request.param} on this machine: {error}")
    task = Guarded()

    async def play() -> list[Feedback]:
        return await asyncio.gather(
            *(
                task.rollout(Example(name, {"answer": ANSWER}), {"system": "", HARNESS: code(body)}, mumble)
                for name, body in hostile_harness.ATTACKS.items()
            )
        )

    def code(body: str) -> str:
        given = repr(host).replace(repr(ANSWER[::-1]), f"{ANSWER[::-1]!r}[::-1]")
        return hostile_harness.code_of(body, host).replace(repr(host), given)

    before = descendants(os.getpid())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness, "protections", lambda: runner.Protections(layers))
        patch.setattr(harness, "_SERVER", harness._Server())
        feedback = dict(zip(hostile_harness.ATTACKS, wait_for(play()), strict=True))
        yield task, feedback, before


def test_there_are_many_attempts() -> None:
    assert len(hostile_harness.ATTACKS) >= 60


@pytest.mark.parametrize("name", hostile_harness.ATTACKS)
def test_it_gets_nothing(played: tuple[Guarded, dict[str, Feedback], Any], name: str) -> None:
    task, feedback, _ = played
    said = [task.graded.get(name, ""), feedback[name].text, *feedback[name].by_component.values()]
    assert feedback[name].score == 0.0
    assert not any(word in text for word in ("ESCAPED", SECRET, ANSWER) for text in said), said
    assert not feedback[name].error
    if name in FAULTS:
        assert feedback[name].faults == {FAULTS[name]: 1}, said
    assert name.startswith(("forged", "bombs")) or not feedback[name].faults, said  # it was not stopped by an accident


def test_the_next_rollout_finds_nothing_of_them(played: tuple[Guarded, Any, Any]) -> None:
    task, _, _ = played
    late = Example("late", {"answer": ANSWER})
    wait_for(task.rollout(late, {"system": "", HARNESS: hostile_harness.LATE}, mumble))
    assert set(eval(task.graded["late"])) == {False}


def test_nothing_is_left_but_the_process_that_forks(played: tuple[Guarded, Any, dict[int, str]]) -> None:
    before = played[2]
    ours = {each for each, (parent, _) in parents().items() if parent == os.getpid()}
    (server,) = (each for each in ours - set(before) if "inside.harness" in Path(f"/proc/{each}/cmdline").read_text())
    family = descendants(os.getpid())
    forks = {each: began for each, began in family.items() if each not in before and each != server}
    stays = min(descendants(server).items(), key=lambda item: int(item[1]))[0]  # what forks, behind the walls
    assert gone({each: began for each, began in forks.items() if each != stays})
    assert set(descendants(server)) == {stays}
    os.kill(server, signal.SIGKILL)  # with it all ends, and the next rollout starts another one
    assert gone(forks)


def test_a_machine_without_walls_runs_no_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "protections", lambda: runner.Protections(("seccomp",)))
    monkeypatch.setattr(harness, "_SERVER", harness._Server())
    with pytest.raises(SandboxError, match=r"needs full isolation.*read all files"):
        wait_for(harness.run_harness(harness.Job("", "solve", (), {}), None))  # type: ignore[arg-type]
