"""Harbor's task folders: an agent works in the machine that a folder describes; the folder's tests score what it leaves."""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from fastslow.base.errors import FastSlowWarning, TaskError
from fastslow.base.text import one_line, redacted
from fastslow.gateway.server import gateway, variables
from fastslow.gateway.session import Session
from fastslow.tasks.adapters.agent_rollout import LEAKED, AgentLimits, AgentRollouts, Clock, use_tools
from fastslow.tasks.adapters.harbor.folder import Folder, find_folders, from_host
from fastslow.tasks.adapters.harbor.machines import ContainerMachine, Machine, SandboxMachine, find_engine
from fastslow.tasks.base import Example, Feedback, Split, within
from fastslow.tasks.data import ListedTask, Row, complete_splits, name_examples

SHELL = {
    "name": "shell",
    "description": "Run a command of bash and see what it prints. Each command starts in the working directory.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
SHOWN = 10_000
"""Characters of a command's output that the policy sees, and of the tests' output that becomes words."""
NO_REWARD, TESTS_HUNG = "no_reward", "tests_hung"
"""Faults: the tests failed before they wrote a reward; they took longer than they may."""
AGENT = "/agent"
"""Where the files of a command are."""


class HarborOptions(AgentLimits):
    path: str
    """A task folder, or a folder that holds task folders. Problems are named by where they are in it."""
    validation_path: str | None = None
    """The same, for validation."""
    test_path: str | None = None
    """The same, for test."""
    holdout: float = Field(default=0.1, ge=0, lt=0.5)
    """Share of the tasks held out for validation, and as many again for test, where no folder is given for them, chosen by a
    hash of their names; 0 holds nothing out."""
    command: str | None = None
    """The agent: a command, run in the task's machine with OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL and
    ANTHROPIC_API_KEY set. The instruction is its standard input, and stands in /agent/instruction.md. Without one, the policy
    itself works with a shell as its tool."""
    folder: str | None = None
    """With a command: files that are copied to /agent."""
    runtime: Literal["auto", "sandbox", "docker", "podman"] = "auto"
    """Where tasks run: `auto` takes Docker or Podman where one of them answers, else the sandbox, for tasks that need no
    image."""
    installed: bool = False
    """Sandbox: this machine has what the tasks' Dockerfiles and tests install; such steps of Dockerfiles are left out."""
    readable: list[str] = Field(default=[])
    """Sandbox: folders that tasks can read beside the programs of this machine. What is in their `bin` is found first."""
    network: bool = False
    """Sandbox: tasks that may use the network have this machine's."""
    command_seconds: float = Field(default=60, gt=0)
    """Without a command: seconds that a shell command of the policy may take."""
    seconds: float | None = Field(default=None, gt=0)  # type: ignore[assignment]
    """Seconds that the agent may work, without the time in which it waits for the policy; by default those of the task."""
    reward: str = "reward"
    """The name of the reward in a reward.json that holds several."""

    @model_validator(mode="after")
    def _fits(self) -> HarborOptions:
        if self.folder and not self.command:
            raise ValueError("folder belongs to a command; give the command, or remove folder")
        if self.folder and not Path(self.folder).expanduser().is_dir():
            raise ValueError(f"folder='{self.folder}' is no folder; give that of the agent's files")
        if not self.command and any(text is None for text in self.components.values()) and len(self.components) > 1:
            raise ValueError("without a command there is one agent; give one component")
        return self


class HarborTask(AgentRollouts, ListedTask):
    """Train an agent on Harbor task folders, as they are."""

    Options = HarborOptions
    options: HarborOptions
    seed_text = "Solve the task in a Linux shell. Look first, then work in small steps, and check what you have done."

    def __init__(self, options: HarborOptions) -> None:
        super().__init__(options)
        self.runtime = options.runtime if options.runtime != "auto" else find_engine() or "sandbox"
        sources: dict[Split, str | None] = {
            "train": options.path,
            "validation": options.validation_path,
            "test": options.test_path,
        }
        rows = {split: self._rows(path) for split, path in sources.items() if path}
        named = complete_splits(rows, options.holdout, lambda row: str(row["name"]), options.path)
        self._examples = name_examples(named, lambda row: str(row["name"]))

    def _rows(self, path: str) -> list[Row]:
        kept, refused = [], []
        for folder in find_folders(path):
            reason = folder.unsupported()
            if not reason and self.runtime == "sandbox":
                reason = folder.needs_image(self.options.installed, self.options.network)
            elif not reason and self.options.command and not folder.public:
                reason = "it has no network, and the agent's command must reach the policy"
            if reason:
                refused.append(f"{folder.name}: {reason}")
            else:
                kept.append({"name": folder.name, "instruction": folder.instruction, "folder": str(folder.path)})
        advice = " (Docker or Podman can run those that need an image)" if self.runtime == "sandbox" else ""
        if not kept:
            raise TaskError(f"none of the tasks in '{path}' fits the {self.runtime}{advice}: {'; '.join(refused[:5])}")
        if refused:
            warnings.warn(
                f"{len(refused)} of the tasks in '{path}' do not fit the {self.runtime}{advice} and are left out: "
                f"{'; '.join(refused)}",
                FastSlowWarning,
                stacklevel=2,
            )
        return kept

    def shown(self, example: Example) -> object:
        return {"instruction": example.data["instruction"]}

    async def attempt(self, example: Example, session: Session, clock: Clock) -> Any:
        folder = Folder(Path(str(example.data["folder"])), str(example.data["name"]))
        instruction = str(example.data["instruction"])
        async with AsyncExitStack() as stack:
            machine = await self._machine(folder, stack)
            seconds = self.options.seconds or folder.config.agent.timeout_sec or AgentLimits().seconds
            if self.options.command:
                work = self._command(machine, folder, instruction, session)
            else:
                work = self._shell(machine, folder, instruction, session)
            ended = await self.timed(work, session, clock, seconds)
            feedback = await self._tested(machine, folder)
        if isinstance(ended, Feedback):  # it failed; what it left is scored nevertheless
            feedback = replace(
                feedback, faults={**feedback.faults, **ended.faults}, error=feedback.error or ended.error
            )
        return feedback

    async def _machine(self, folder: Folder, stack: AsyncExitStack) -> Machine:
        machine: Machine
        command, network = self.options.command, folder.public
        if self.runtime == "sandbox":
            port = gateway().port if command else None
            readable = [str(Path(each).expanduser().resolve()) for each in self.options.readable]
            first = [f"{each}/bin" for each in readable]
            box = await SandboxMachine.started(folder, readable, network and self.options.network, port, first)
            machine = box
            stack.push_async_callback(machine.close)
            if box.box.listening is not None:
                await stack.enter_async_context(gateway().reached_from(box.box.listening))
        else:
            engine: Literal["docker", "podman"] = "docker" if self.runtime == "docker" else "podman"
            machine = await ContainerMachine.started(
                engine, folder, network="none" if not network else "host" if command else ""
            )
            stack.push_async_callback(machine.close)
        return machine

    async def _command(self, machine: Machine, folder: Folder, instruction: str, session: Session) -> None:
        if self.options.folder:
            await machine.put(Path(self.options.folder).expanduser(), AGENT)
        written = f"mkdir -p {AGENT} && cat > {AGENT}/instruction.md"
        await machine.run(written, seconds=60, folder="/", given=instruction.encode())
        with gateway().opened(session) as (url, key):
            ran = await machine.run(
                str(self.options.command),
                seconds=24 * 3600,
                environment=variables(url, key),
                user=folder.config.agent.user,
                given=instruction.encode(),
            )
        if ran.left:
            session.faults[LEAKED] += 1
        if ran.code:
            last = one_line(redacted(ran.errors.strip().rpartition("\n")[2]))
            raise TaskError(f"the command ended with {ran.code}: {last}")

    async def _shell(self, machine: Machine, folder: Folder, instruction: str, session: Session) -> None:
        async def call(name: str, given: Any) -> str:
            return await self._called(machine, folder, name, given)

        await use_tools(session, [{"role": "user", "content": instruction}], [SHELL], call)

    async def _called(self, machine: Machine, folder: Folder, name: str, given: Any) -> str:
        command = given.get("command") if isinstance(given, Mapping) else None
        if name != SHELL["name"] or not isinstance(command, str):
            return "There is one tool, shell, and it takes a command."
        seconds = self.options.command_seconds
        ran = await machine.run(f"exec 2>&1\n{command}", seconds=seconds, user=folder.config.agent.user)
        lines = [_shortened(ran.output.rstrip("\n"))]
        if ran.timed_out:
            lines.append(f"[ended after {seconds:g} seconds]")
        elif ran.code:
            lines.append(f"[exit code {ran.code}]")
        return "\n".join(filter(None, lines)) or "[no output]"

    async def _tested(self, machine: Machine, folder: Folder) -> Feedback:
        """Copy the tests in, which the agent has not seen, run them, and read the reward."""
        given = folder.config.verifier
        user, logs = given.user, "/logs/verifier"
        cleared = f"rm -rf {logs}/reward.txt {logs}/reward.json /tests && mkdir -p {logs}"
        await machine.run(cleared, seconds=60, folder="/", user="root")
        await machine.put(folder.path / "tests", "/tests")
        await machine.run("chmod +x /tests/test.sh", seconds=60, folder="/", user="root")
        seconds = given.timeout_sec or AgentLimits().seconds
        environment = from_host(given.env, f"task '{folder.name}'")
        ran = await machine.run("exec 2>&1\n/tests/test.sh", seconds=seconds, environment=environment, user=user)
        words = _shortened(ran.output.strip())
        if ran.timed_out:
            return Feedback(0.0, f"The tests took more than {seconds:g} seconds.\n{words}", faults={TESTS_HUNG: 1})
        for name in ("reward.json", "reward.txt"):
            read = await machine.run(f"cat {shlex.quote(f'{logs}/{name}')}", seconds=60, folder="/")
            if not read.code:
                return Feedback(self._reward(folder, name, read.output), words)
        if ran.code:
            return Feedback(
                0.0, words, faults={NO_REWARD: 1}, error=f"test.sh ended with {ran.code} and wrote no reward"
            )
        raise TaskError(f"task '{folder.name}': its tests/test.sh wrote neither reward.txt nor reward.json to {logs}")

    def _reward(self, folder: Folder, name: str, text: str) -> float:
        found: Any = None
        with suppress(ValueError, RecursionError):
            found = json.loads(text) if name == "reward.json" else float(text)
        if isinstance(found, Mapping):
            found = next(iter(found.values())) if len(found) == 1 else found.get(self.options.reward)
        score = within(found)
        if score is None:
            raise TaskError(
                f"task '{folder.name}': its {name} holds '{one_line(text, 80)}'; expected a number from 0 to 1, "
                "or several with one of the name that the task's reward option gives"
            )
        return score


def _shortened(text: str) -> str:
    half = SHOWN // 2
    left = len(text) - SHOWN
    return text if left <= 0 else f"{text[:half]}\n[… {left} characters …]\n{text[-half:]}"
