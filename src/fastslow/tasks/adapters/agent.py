"""Agents as they are: a Python function, or a command, that calls the policy as it would call a model's server."""

from __future__ import annotations

import asyncio
import inspect
import json
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from fastslow.base.errors import RecipeError, TaskError
from fastslow.base.registry import load_named
from fastslow.base.text import one_line, redacted
from fastslow.base.world import in_thread, wait_for
from fastslow.models.chat import speaking
from fastslow.sandbox.process import queued, unwatched
from fastslow.tasks.adapters.agent_process import prepare, run_command
from fastslow.tasks.adapters.dataset import call_grader, load_grader
from fastslow.tasks.base import SYSTEM, Answer, Ask, Asking, Example, Feedback, QuestionTask
from fastslow.tasks.data import Row, RowTask, SourceOptions, content_id

try:
    from fastslow.gateway.rendering import rendering_of
    from fastslow.gateway.server import gateway
    from fastslow.gateway.session import LIMIT, Place, Refused, Said, Session, Wanted
except ModuleNotFoundError as error:
    raise TaskError(
        f"task 'agent' needs the package {error.name}; install it with: pip install 'fastslow[agents]'"
    ) from error

KNOWN = ("problem", "base_url", "api_key", "anthropic_base_url", "client")
"""What an agent's function may ask for, by the names of its parameters."""
CRASHED, HUNG, LEAKED = "agent_crashed", "agent_hung", "agent_leaked"
"""Faults: it failed; it took longer than it may; it left processes behind."""
GRACE = 5.0
"""Seconds that an agent has to clean up when it is cancelled."""
PROBED = 2
"""Problems on which an agent is listened to for its system message."""


class AgentOptions(SourceOptions):
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
    components: dict[str, str | None] = Field(default={SYSTEM: None}, min_length=1)
    """The texts that evolve, by the name of their component: the model `policy/NAME` reads the text of NAME. Where there is
    one, it is the text of every model. A text that is not given is taken from the system message that the agent sends."""
    place: Literal["before", "instead"] = "before"
    """Where a text goes that is given: before the agent's system message, or in its place. If {{fastslow}} stands in that
    message, the text goes there. A text that is taken from the agent stands in the place of what it was."""
    seconds: float = Field(default=600, gt=0)
    """Seconds that the agent may work, without the time in which it waits for the policy."""
    turns: int = Field(default=50, ge=1)
    """Answers that the policy gives in one rollout; grading.max_turns limits them too."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens after which the policy gives no more answers in a rollout."""
    at_once: int = Field(default=64, ge=1)
    """Agents that work at the same time."""

    @model_validator(mode="after")
    def _one_agent(self) -> AgentOptions:
        if (self.agent is None) == (self.command is None):
            raise ValueError("give either agent (module:function) or command")
        for name in ("folder", "result", "tests"):
            if self.agent and getattr(self, name):
                raise ValueError(f"{name} belongs to a command, and agent is a function; remove {name}")
        if self.tests and (self.grader or self.result):
            raise ValueError("tests give the score, and so would grader or result; keep one of them")
        if self.folder and not Path(self.folder).expanduser().is_dir():
            raise ValueError(f"folder='{self.folder}' is no folder; give that of the agent's files")
        return self


class AgentTask(RowTask):
    """Train an agent that calls a model through the interface of OpenAI or Anthropic."""

    Options = AgentOptions
    options: AgentOptions
    grades_apart = True  # an agent that has its answer works on while others are sampled

    def __init__(self, options: AgentOptions) -> None:
        self._agent = load_agent(options.agent) if options.agent else None
        self._grader = load_grader(options.grader) if options.grader else None
        super().__init__(options)

    def prepared(self, source: str, rows: list[Row]) -> list[Row]:
        return rows

    def name(self, row: Row) -> str:
        if self.options.id and row.get(self.options.id) is None:
            raise TaskError(f"a row has no value in column '{self.options.id}', which the task's id names; fill it in")
        return str(row[self.options.id]) if self.options.id else content_id(row)

    @property
    def seed_texts(self) -> Mapping[str, str]:
        given = {name: text for name, text in self.options.components.items() if text is not None}
        return {name: given.get(name, self.own.get(name) or QuestionTask.seed_text) for name in self.options.components}

    @cached_property
    def own(self) -> Mapping[str, str]:
        """The system messages that the agent sends by itself for components without a text, if they are the same for all
        problems that it is tried on."""
        missing = {name for name, text in self.options.components.items() if text is None}
        if not missing:
            return {}
        heard = [wait_for(self._listen(example, missing)) for example in self.examples("train")[:PROBED]]
        return {name: text for name, text in heard[0].items() if all(text == each.get(name) for each in heard)}

    @property
    def places(self) -> dict[str, Place]:
        return dict.fromkeys(self.options.components, self.options.place)

    def shown(self, example: Example) -> object:
        return dict(example.data)

    @cached_property
    def _free(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.options.at_once)

    async def rollout(self, example: Example, texts: Mapping[str, str], ask: Asking) -> Feedback:
        """One attempt of the agent. Without a policy there is nobody to ask, and it is not started."""
        chat = speaking.get()
        if chat is None:
            return Feedback(0.0)
        clock = Clock()

        async def sample(asked: Ask, wanted: Wanted) -> Answer:
            with clock.stopped():
                answer = await ask(asked)
            return answer if isinstance(answer, Answer) else Answer(answer)

        session = Session(
            rendering_of(chat),
            texts,
            sample,
            chat.has_ended,
            self.places,
            self.own,
            most_turns=self.options.turns,
            most_tokens=self.options.tokens,
        )
        with queued():
            await self._free.acquire()
        try:
            with unwatched():  # the agent has a clock of its own
                outcome = await self._run(example, session, clock)
        finally:
            self._free.release()
        feedback = outcome if isinstance(outcome, Feedback) else await self._grade(example, outcome)
        return replace(feedback, faults={**+session.faults, **feedback.faults})

    async def _run(self, example: Example, session: Session, clock: Clock) -> Any:
        """What the agent returned; feedback where it failed."""
        running = asyncio.ensure_future(self._start(example, session))
        try:
            while not running.done() and (left := self.options.seconds - clock.worked) > 0:
                await asyncio.wait({running}, timeout=max(left, 0.05))
            if not running.done():
                return self._failed(session, HUNG, f"the agent worked for more than {self.options.seconds:g} seconds")
            return running.result()
        except (RecipeError, asyncio.CancelledError):
            raise
        except BaseException as error:  # somebody else's code, which can raise anything
            return self._failed(session, CRASHED, f"{type(error).__name__}: {one_line(redacted(str(error)))}", error)
        finally:
            running.cancel()
            await asyncio.wait({running}, timeout=GRACE)
            if running.done() and not running.cancelled():
                running.exception()  # seen: it is not reported

    def _failed(self, session: Session, fault: str, error: str, cause: BaseException | None = None) -> Feedback:
        """The policy may have led the agent astray, which the attempt is scored for; not if it was never asked."""
        if not session.turns:
            raise TaskError(f"the agent failed before it asked the policy: {error}") from cause
        words = "The agent took too long." if fault == HUNG else "The agent failed before it had a result."
        if LIMIT in session.faults:
            words = "The agent had no result when it had used all the answers it may have."
        return Feedback(0.0, words, faults={fault: 1}, error=error)

    async def _start(self, example: Example, session: Any) -> Any:
        problem = dict(example.data)
        with gateway().opened(session) as (url, key):
            if self._agent is not None:
                return await call_agent(self._agent, problem, url, key)
            with tempfile.TemporaryDirectory(prefix="fastslow-", ignore_cleanup_errors=True) as folder:
                return await self._command(problem, Path(folder), session, url, key)

    async def _command(self, problem: Row, folder: Path, session: Any, url: str, key: str) -> Any:
        options = self.options
        await in_thread(prepare, folder, options.folder, problem)
        given = {
            "OPENAI_API_KEY": key,
            "OPENAI_BASE_URL": f"{url}/v1",
            "ANTHROPIC_API_KEY": key,
            "ANTHROPIC_BASE_URL": url,
        }
        ended = await run_command(str(options.command), folder, given, problem)
        session.faults[LEAKED] += ended.leaked
        if options.tests:
            tested = await run_command(options.tests, folder, {"FASTSLOW_TESTS": key}, problem)
            return Feedback(float(tested.code == 0), f"{tested.output}\n{tested.errors}".strip())
        if ended.code:
            last = one_line(redacted(ended.errors.strip().rpartition("\n")[2]))
            raise TaskError(f"the command ended with {ended.code}: {last}")
        written = ended.output
        if options.result:
            file = folder / options.result
            if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
                raise TaskError(f"the command wrote no file '{options.result}'")
            written = file.read_text(errors="replace")
        return written if self._grader else _decoded(written)

    async def _grade(self, example: Example, returned: Any) -> Feedback:
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
                words = f"{type(error).__name__}: {one_line(redacted(str(error)))}"
                raise TaskError(
                    f"the agent, started on problem '{one_line(example.id, 60)}' to see which text it sends, failed before "
                    f"it asked for an answer: {words}; correct it, or give a text for each of components"
                ) from error
        return listener.heard


@dataclass
class Listener:
    """Stands where the policy's session would, and answers with nothing until it has heard all it wants."""

    texts: Mapping[str, str]
    missing: set[str]
    heard: dict[str, str] = field(default_factory=dict)
    component: Callable[..., str] = Session.component
    stored: dict[str, Any] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def models(self) -> list[str]:
        return list(self.texts)

    async def answers(self, wanted: Wanted) -> list[Said]:
        if self.missing <= set(self.heard):
            raise Refused(403, "listening", "the agent is only started to see what it sends")
        name = self.component(self, wanted.model)
        system = [each["content"] for each in wanted.messages if each["role"] == "system"]
        self.heard.setdefault(name, "\n\n".join(system))
        return [Said("", "", (), "stop", None, 0, 0, ())] * wanted.n

    def store(self, name: str, messages: Any) -> None:
        self.stored[name] = messages


class Clock:
    """The time in which an agent works: that in which no answer of the policy is outstanding."""

    def __init__(self) -> None:
        self._worked, self._since, self._waits = 0.0, time.monotonic(), 0

    @property
    def worked(self) -> float:
        return self._worked + (0.0 if self._waits else time.monotonic() - self._since)

    def stopped(self) -> Any:
        return self

    def __enter__(self) -> None:
        self._worked = self.worked
        self._waits += 1

    def __exit__(self, *_: object) -> None:
        self._waits -= 1
        self._since = time.monotonic()


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
