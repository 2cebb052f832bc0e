"""Agents as they are: a Python function, or a command, that calls the policy as it would call a model's server."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.registry import load_named
from fastslow.base.text import one_line, redacted
from fastslow.base.world import in_thread, wait_for
from fastslow.gateway.server import gateway, variables
from fastslow.gateway.session import Refused, Said, Session, Wanted
from fastslow.tasks.adapters.agent_process import Place, in_box, in_folder
from fastslow.tasks.adapters.agent_rollout import LEAKED, AgentLimits, AgentRollouts, Clock, described
from fastslow.tasks.adapters.dataset import call_grader, load_grader
from fastslow.tasks.base import Example, Feedback, QuestionTask
from fastslow.tasks.data import Row, RowTask, SourceOptions, content_id

KNOWN = ("problem", "base_url", "api_key", "anthropic_base_url", "client")
"""What an agent's function may ask for, by the names of its parameters."""
PROBED = 2
"""Problems on which an agent is listened to for its system message."""


class AgentOptions(AgentLimits, SourceOptions):
    agent: str | None = None
    """`module:function` in the current folder, plain or async. It is called with those of these that it has parameters for:
    problem (the row), base_url, api_key, anthropic_base_url, client (an OpenAI client)."""
    command: str | None = None
    """Instead of a function: a shell command, run in a folder of its own that holds problem.json, which it is given on
    standard input too, with OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY set."""
    folder: str | None = None
    """With a command: files that are copied to its folder."""
    grader: str | None = None
    """`module:function`, called with what the agent returned, or wrote, and the row. It returns a score from 0 to 1, a
    (score, text) tuple or a Feedback. Without one, the agent itself returns that, or a mapping of `score` and `feedback`; a
    command writes it as JSON."""
    result: str | None = None
    """With a command: the file in its folder that has the result; by default it is the standard output."""
    tests: str | None = None
    """With a command: a shell command that is run in the same folder afterwards. The score is 1 if it ends with 0, else 0,
    and what it writes is the feedback."""
    id: str | None = None
    """The column that names a row; without one, rows are named by a hash of their content."""

    isolated: bool = False
    """Run the command in the sandbox: in /agent of a machine of its own, as an ordinary user. It can read the programs of
    this machine and what `readable` names, and reach the policy's address and nothing else."""
    readable: list[str] = Field(default=[])
    """With `isolated`: folders that the command can read under their own paths. What is in their `bin` is found first."""

    @model_validator(mode="after")
    def _one_agent(self) -> AgentOptions:
        if (self.agent is None) == (self.command is None):
            raise ValueError("give either agent (module:function) or command")
        for name in ("folder", "result", "tests", "isolated"):
            if self.agent and getattr(self, name):
                raise ValueError(f"{name} belongs to a command, and agent is a function; remove {name}")
        if self.tests and (self.grader or self.result):
            raise ValueError("tests give the score, and so would grader or result; keep one of them")
        if self.readable and not self.isolated:
            raise ValueError("readable belongs to isolated; set isolated, or remove readable")
        if self.folder and not Path(self.folder).expanduser().is_dir():
            raise ValueError(f"folder='{self.folder}' is no folder; give that of the agent's files")
        return self


class AgentTask(AgentRollouts, RowTask):
    """Train an agent that calls a model through the interface of OpenAI or Anthropic."""

    Options = AgentOptions
    options: AgentOptions
    seed_text = QuestionTask.seed_text

    def __init__(self, options: AgentOptions) -> None:
        self._agent = load_agent(options.agent) if options.agent else None
        self._grader = load_grader(options.grader) if options.grader else None
        super().__init__(options)

    def name(self, row: Row) -> str:
        if self.options.id and row.get(self.options.id) is None:
            raise TaskError(f"a row has no value in column '{self.options.id}', which the task's id names; fill it in")
        return str(row[self.options.id]) if self.options.id else content_id(row)

    @cached_property
    def own(self) -> Mapping[str, str]:
        """The system messages that the agent sends by itself for components without a text, if they are the same for all
        problems that it is tried on."""
        missing = {name for name, text in self.options.components.items() if text is None}
        if not missing:
            return {}
        heard = [wait_for(self._listen(example, missing)) for example in self.examples("train")[:PROBED]]
        return {name: text for name, text in heard[0].items() if all(text == each.get(name) for each in heard)}

    def shown(self, example: Example) -> object:
        return dict(example.data)

    async def attempt(self, example: Example, session: Session, clock: Clock) -> Any:
        return await self.timed(self._start(example, session), session, clock, self.options.seconds)

    async def _start(self, example: Example, session: Any) -> Any:
        problem = dict(example.data)
        with gateway().opened(session) as (url, key):
            if self._agent is not None:
                return await call_agent(self._agent, problem, url, key)
            async with (
                in_box(self.options, problem) if self.options.isolated else in_folder(self.options, problem) as place
            ):
                return await self._command(place, session, url, key)

    async def _command(self, place: Place, session: Any, url: str, key: str) -> Any:
        options = self.options
        ended = await place.run(str(options.command), variables(url, key))
        session.faults[LEAKED] += ended.leaked
        if options.tests:
            tested = await place.run(options.tests, {"FASTSLOW_TESTS": key})
            return Feedback(float(tested.code == 0), f"{tested.output}\n{tested.errors}".strip())
        if ended.code:
            last = one_line(redacted(ended.errors.strip().rpartition("\n")[2]))
            raise TaskError(f"the command ended with {ended.code}: {last}")
        written: str | None = ended.output
        if options.result:
            written = await place.read(options.result)
            if written is None:
                raise TaskError(f"the command wrote no file '{options.result}'")
        return written if self._grader else _decoded(str(written))

    async def grade(self, example: Example, returned: Any) -> Feedback:
        name, grader = str(self.options.grader), self._grader
        if grader is None:
            if isinstance(returned, Mapping):
                returned = (returned.get("score"), str(returned.get("feedback") or ""))
            name, grader = "agent", lambda answer, row: answer
        graded = call_grader(name, grader, returned, dict(example.data))
        return graded if isinstance(graded, Feedback) else await graded

    async def _listen(self, example: Example, missing: set[str]) -> dict[str, str]:
        """Start the agent, answer with nothing, and note the system messages that it sends."""
        listener = Listener(dict.fromkeys(self.options.components, ""), missing)
        try:
            async with asyncio.timeout(self.options.seconds):
                await self._start(example, listener)
        except RecipeError:
            raise
        except Exception as error:
            if not listener.heard:
                raise TaskError(
                    f"the agent, started on problem '{one_line(example.id, 60)}' to see which text it sends, failed before "
                    f"it asked for an answer: {described(error)}; correct it, or give a text for each of components"
                ) from error
        return listener.heard


@dataclass
class Listener:
    """Stands where the policy's session would, and answers with nothing until it has heard all it wants."""

    texts: Mapping[str, str]
    missing: set[str]
    heard: dict[str, str] = field(default_factory=dict)
    stored: dict[str, Any] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    models = Session.models
    component = Session.component

    async def answers(self, wanted: Wanted) -> list[Said]:
        if self.missing <= set(self.heard):
            raise Refused(403, "listening", "the agent is only started to see what it sends")
        name = self.component(wanted.model)  # type: ignore[misc]  # it reads the texts and the models alone
        system = [each["content"] for each in wanted.messages if each["role"] == "system"]
        self.heard.setdefault(name, "\n\n".join(system))
        return [Said("", "", (), "stop", None, 0, 0, ())] * wanted.n

    def store(self, name: str, messages: Any) -> None:
        self.stored[name] = messages


def load_agent(name: str) -> Callable[..., Any]:
    """The function `module:function`, if its parameters are among those that it can be given."""
    agent = load_named("agent", name)
    if not callable(agent):
        raise TaskError(f"agent '{name}' is of type {type(agent).__name__}; expected a function")
    required = [each for each in inspect.signature(agent).parameters.values() if each.default is each.empty]
    named = [each.name for each in required if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
    if unknown := [name for name in named if name not in KNOWN]:
        raise TaskError(f"agent '{name}' has the parameters {unknown}; an agent can be given {', '.join(KNOWN)}")
    return agent


async def call_agent(agent: Callable[..., Any], problem: Row, url: str, key: str) -> Any:
    """What the function returns. It runs in a thread, an async one on a loop of its own there, so that one that blocks
    delays nobody else."""
    known: dict[str, Any] = {
        "problem": problem,
        "base_url": f"{url}/v1",
        "api_key": key,
        "anthropic_base_url": url,
    }
    parameters = inspect.signature(agent).parameters
    names = KNOWN[:-1] if any(each.kind is each.VAR_KEYWORD for each in parameters.values()) else ()
    if "client" in parameters:
        import openai

        # Certificates take a while to load, and there is nothing to verify on this machine.
        if inspect.iscoroutinefunction(agent):
            connection = openai.DefaultAsyncHttpxClient(verify=False)
            known["client"] = openai.AsyncOpenAI(base_url=known["base_url"], api_key=key, http_client=connection)
        else:
            plain = openai.DefaultHttpxClient(verify=False)
            known["client"] = openai.OpenAI(base_url=known["base_url"], api_key=key, http_client=plain)
    arguments = {name: known[name] for name in known if name in parameters or name in names}
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = []

    async def awaited(result: Awaitable[Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        running.append((asyncio.get_running_loop(), task))
        return await result

    def run() -> Any:
        result = agent(**arguments)
        return asyncio.run(awaited(result)) if inspect.isawaitable(result) else result

    try:
        return await in_thread(run)
    except asyncio.CancelledError:
        for loop, task in running:
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(task.cancel)
        raise


def _decoded(written: str) -> Any:
    """What a command wrote as JSON, on its last line or as a whole."""
    for text in (written, written.strip().rpartition("\n")[2]):
        with suppress(ValueError, RecursionError):
            found = json.loads(text)
            return tuple(found) if isinstance(found, list) else found
    raise TaskError(f"the command wrote '{one_line(written, 100)}'; expected a score as JSON, or set grader")
