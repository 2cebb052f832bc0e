"""Notices what changed in the run folders, once for all viewers, and only while somebody looks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastslow.runs.board.views import Views

EVERY = 0.8
"""Seconds between two looks at the folders."""
QUIET = 15.0
"""Seconds after which a comment is sent, so that a broken connection is noticed."""

WAITING = 50
"""Events that wait for a viewer at most."""


class Watch:
    """Sends `change` events: which parts of which runs are new."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self._viewers: set[asyncio.Queue[str]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events for one viewer."""
        queue: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self._viewers.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            yield "retry: 1000\nevent: hello\ndata: {}\n\n"
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), QUIET)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._viewers.discard(queue)

    async def _look(self) -> None:
        before = await asyncio.to_thread(self._versions)
        while self._viewers:
            await asyncio.sleep(EVERY)
            now = await asyncio.to_thread(self._versions)
            if changed := differences(before, now):
                event = f"event: change\ndata: {json.dumps(changed)}\n\n"
                for queue in self._viewers:
                    if not queue.full():  # a viewer that sleeps finds out with its next fetch
                        queue.put_nowait(event)
            before = now

    def _versions(self) -> dict[str, dict[str, Any]]:
        return {name: run.version() for name, run in self.views.find().items()}


def differences(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> dict[str, list[str]]:
    """The changed parts by run; a run that is new or gone has all parts changed."""
    changed = {}
    for name in {**before, **now}:
        old, new = before.get(name, {}), now.get(name, {})
        parts = [part for part in {**old, **new} if old.get(part) != new.get(part)]
        if parts:
            changed[name] = parts
    return changed
