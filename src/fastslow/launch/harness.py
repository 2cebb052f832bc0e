"""The harness of a run outside of it: a readable file beside a manifest with its hash, run in the sandbox alone."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastslow.base.errors import RunError
from fastslow.base.text import one_line
from fastslow.base.world import wait_for
from fastslow.models.chat import Message, merge_context
from fastslow.records import Component, Context
from fastslow.runs import files
from fastslow.runs.folder import RunFolder
from fastslow.sandbox.harness import Job, Refused, plain, run_harness
from fastslow.sandbox.signature import read_signature
from fastslow.tasks.base import Task
from fastslow.tasks.harness import HarnessTask, read_messages

CODE = "contexts/code.json"
"""In a run folder: which components are code, and how it is called."""
MANIFEST = "harness.json"
LIMITS = ("seconds", "megabytes", "asks")
_HEAD = """\
# The harness of a fastslow run: component '{name}' of context {context}, which defines {signature}.
# A model wrote it: read it before you run it. `fastslow.load_harness` runs it in the sandbox.

"""


def note_code(run: RunFolder | None, task: Task) -> None:
    """Note in the run folder which components are code: without the task, nobody could tell."""
    found = {each.name: _note(each, task) for each in task.components if each.kind == "code"}
    if run is not None and found:
        run.write_json(CODE, found)


def _note(component: Component, task: Task) -> dict[str, Any]:
    limits = vars(task.limits) if isinstance(task, HarnessTask) else {}
    return {"signature": component.signature, "about": component.about, "limits": limits}


def code_files(run: RunFolder, context: Context) -> dict[str, str]:
    """The code of a context as files by name, and their manifest; nothing if the run has no code."""
    found = run.read_json(CODE)
    if not found:
        return {}
    written: dict[str, str] = {}
    manifest: dict[str, Any] = {"context": context.id, "code": {}}
    for name, about in found.items():
        if not re.fullmatch(r"\w[\w-]*", name) or name not in context.texts:
            raise RunError(
                f"'{run.path / CODE}' names the code '{one_line(name, 60)}', which is none; restore the file"
            )
        head = _HEAD.format(name=name, context=context.id, signature=one_line(about["signature"], 200))
        written[f"{name}.py"] = text = f"{head}{context.texts[name].strip()}\n"
        digest = hashlib.sha256(text.encode()).hexdigest()
        manifest["code"][name] = {"file": f"{name}.py", "sha256": digest, **about}
    manifest["prompts"] = {name: text for name, text in context.texts.items() if name not in found}
    return {**written, MANIFEST: json.dumps(manifest, indent=2, ensure_ascii=False)}


Asks = Callable[[list[Message]], str | Awaitable[str]]


@dataclass(frozen=True)
class Harness:
    """Code that `fastslow export` wrote, with the prompts that it asks under."""

    code: str
    signature: str
    prompts: Mapping[str, str]
    seconds: float = 5
    megabytes: int = 256
    asks: int = 8

    def solve(self, problem: Any, ask: Asks, tools: Mapping[str, Callable[..., Any]] | None = None) -> str:
        """What the code returns for a problem. `ask` is called with messages, prompts included, and returns the model's
        answer. It and the tools may be async."""
        tools, (entry, parameters), asked = tools or {}, read_signature(self.signature), 0

        async def answer(request: dict[str, Any]) -> Any:
            nonlocal asked
            if "ask" in request:
                asked += 1
                if asked > self.asks:
                    raise Refused(f"no more than {self.asks} answers are given for one problem")
                given: Any = await _value(ask(self._messages(**request["ask"])))
                return str(given)
            if request["tool"] not in tools:
                raise Refused(f"there is no tool {one_line(request['tool'], 60)!r}")
            try:
                return plain(await _value(tools[request["tool"]](*request["arguments"], **request["named"])))
            except Exception as error:
                raise Refused(f"{type(error).__name__}: {one_line(error)}") from None

        limits = {"seconds": self.seconds, "megabytes": self.megabytes}
        job = Job(self.code, entry, parameters, problem, list(tools), json.dumps(problem), **limits)  # type: ignore[arg-type]
        ended = wait_for(run_harness(job, answer))
        if ended.reason:
            raise RunError(f"the harness failed: {ended.words}")
        return ended.returned

    def _messages(self, messages: Any, component: Any, **_: Any) -> list[Message]:
        name = next(iter(self.prompts)) if component is None else component
        if not isinstance(name, str) or name not in self.prompts:
            raise Refused(
                f"there is no component {one_line(name, 60)!r} to ask; expected one of {', '.join(self.prompts)}"
            )
        return merge_context(read_messages(messages), self.prompts[name])


async def _value(returned: Any) -> Any:
    return await returned if inspect.isawaitable(returned) else returned


def load_harness(folder: str | Path, name: str | None = None) -> Harness:
    """The harness that `fastslow export` wrote beside the weights. The code is run in the sandbox, never in this process, and
    refused where it is not what was exported."""
    place = Path(folder)
    manifest = files.read_json(place / MANIFEST)
    if manifest is None:
        raise RunError(
            f"'{folder}' has no {MANIFEST}; expected a folder that `fastslow export` made of a run with a harness"
        )
    try:
        name = name or next(iter(manifest["code"]))
        entry, prompts = manifest["code"][name], dict(manifest["prompts"])
        text = (place / Path(entry["file"]).name).read_text(encoding="utf-8")
        sha256, signature = entry["sha256"], entry["signature"]
        limits = {each: entry["limits"][each] for each in LIMITS if each in entry["limits"]}
    except (KeyError, TypeError, StopIteration, OSError, ValueError, AttributeError) as error:
        raise RunError(
            f"'{place / MANIFEST}' does not describe a harness ({type(error).__name__}); export it again"
        ) from None
    if hashlib.sha256(text.encode()).hexdigest() != sha256:
        raise RunError(f"'{place / entry['file']}' is not what was exported: its hash differs; export it again")
    return Harness(text, signature, prompts, **limits)
