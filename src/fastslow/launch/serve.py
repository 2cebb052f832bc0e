"""A run's policy behind the address that its agents were trained at, with its best context in place."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fastslow.engine.base import Engine
from fastslow.gateway.rendering import rendering_of
from fastslow.gateway.server import Door, listen, make_app, require_key
from fastslow.gateway.session import Refused, Session, Wanted
from fastslow.launch.assembly import AtStep, Parts, Snapshot, open_policy
from fastslow.launch.harness import code_files
from fastslow.records import Completion, Sampling
from fastslow.tasks.base import Answer, Ask
from fastslow.tasks.stages import Mixture

KEPT = 10_000
"""Answers whose tokens are kept, so that conversations that go on are not rendered again."""
COLDEST = 0.01
"""The temperature in place of 0, which an engine cannot sample at."""


@dataclass
class Batches:
    """Samples together what is asked for at the same time, with the same settings."""

    engine: Engine
    waiting: list[tuple[list[int], Sampling, int | None, asyncio.Future[Completion]]] = field(default_factory=list)
    worker: asyncio.Task[None] | None = None

    async def sample(self, prompt: list[int], sampling: Sampling, seed: int | None) -> Completion:
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.waiting.append((prompt, sampling, seed, answer))
        if self.worker is None or self.worker.done():
            self.worker = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        while self.waiting:
            if not self.engine.in_flight:
                await asyncio.sleep(0)  # what arrives together is sampled together
            _, sampling, seed, _ = self.waiting[0]
            chosen = [each for each in self.waiting if each[1:3] == (sampling, seed) and not each[3].done()]
            self.waiting = [each for each in self.waiting if each not in chosen and not each[3].done()]
            prompts = [each[0] for each in chosen]
            drawn = secrets.randbits(31) if seed is None else seed % 2**31
            try:  # with `ready` the engine computes in a thread
                completions = await self.engine.sample(prompts, sampling, drawn, ready=lambda row, completion: None)
            except Exception as error:
                for *_, answer in chosen:
                    if not answer.done():
                        answer.set_exception(error)
                continue
            for (*_, answer), completion in zip(chosen, completions, strict=True):
                if not answer.done():
                    answer.set_result(completion)


def serve_run(
    folder: str | Path,
    listening: socket.socket,
    key: str,
    *,
    step: AtStep = None,
    trust: bool = False,
    servers: Sequence[str] = (),
    ready: Callable[[Session], None] = lambda session: None,
) -> None:
    """Serve a run's policy on a bound socket until the process is interrupted; `ready` is called when it is loaded."""
    snapshot, parts = open_policy(folder, step, trust=trust, servers=servers)
    session, code = session_of(snapshot, parts), code_files(snapshot.run, snapshot.pool.best.context)

    async def run() -> None:
        door = Door(session, asyncio.get_running_loop())

        def find(request: Request) -> Door:
            require_key(request, key)
            return door

        def harness(request: Request) -> Response:
            try:
                find(request)
            except Refused as error:
                return JSONResponse({"error": str(error)}, error.status)
            return JSONResponse({"files": code})

        ready(session)
        routes = [Route("/v1/harness", harness)] if code else []
        await listen(make_app(find, more=routes)).serve([listening])

    asyncio.run(run())


def session_of(snapshot: Snapshot, parts: Parts) -> Session:
    """A session without an end over a run's policy and its best context."""
    recipe, chat, batches = snapshot.run.recipe, parts.player.chat, Batches(parts.engine)
    usual = recipe.evaluation.sampling(recipe.sampling.max_tokens)

    async def sample(asked: Ask, wanted: Wanted) -> Answer:
        sampling = Sampling(
            usual.temperature if wanted.temperature is None else max(wanted.temperature, COLDEST),
            usual.top_p if wanted.top_p is None else wanted.top_p,
            min(asked.limit or usual.max_tokens, usual.max_tokens),
        )
        prompt = parts.player.prompt(asked, sampling.max_tokens, {})
        drawn = await batches.sample(prompt, sampling, wanted.seed)
        kept = chat.kept(drawn.ids, asked.limit, asked.stop)
        return Answer(chat.answer(drawn.ids[:kept]), drawn.ids[:kept], drawn.logprobs[:kept])

    tasks = [part.task for part in parts.task.parts] if isinstance(parts.task, Mixture) else [parts.task]
    places = {name: place for task in tasks for name, place in getattr(task, "places", {}).items()}
    own = {name: text for task in tasks for name, text in getattr(task, "own", {}).items()}
    code = {each.name for each in parts.task.components if each.kind == "code"}
    kept = snapshot.pool.best.context.texts.items()
    texts: Mapping[str, str] = {name: text for name, text in kept if name not in code}
    if library := parts.player.library:
        texts = library.over(texts)
    return Session(rendering_of(chat), texts, sample, chat.has_ended, places, own, most_kept=KEPT)
