"""Run folders for the tests of the board: made by the loop itself on an engine of pure Python."""

from __future__ import annotations

import io
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fake_engine import FakeEngine, Numbered
from rich.console import Console

from fastslow.fast.reflection import Lessons
from fastslow.loop import Loop
from fastslow.models.chat import ChatFormat
from fastslow.recipe import Recipe, build_recipe
from fastslow.records import Example, Feedback
from fastslow.rollouts.play import Player
from fastslow.runs.board.server import make_app
from fastslow.runs.board.views import Views
from fastslow.runs.folder import RunFolder
from fastslow.runs.ledger import Entry, Ledger
from fastslow.runs.view import make_view

HOSTILE = (
    "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>\u202egnorw\u202c \x1b[2J\x00 </script><!--"
)
"""Markup, an event handler, right-to-left marks, control characters and the end of a script."""


class Hostile(Numbered):
    """A task whose problems and grader write what a page must not run."""

    def examples(self, split: Any) -> list[Example]:
        return [Example(f"{each.id}{HOSTILE}", each.data) for each in super().examples(split)]

    def grade(self, example: Example, answer: str) -> Feedback:
        right = answer == "yes"
        # Problem 25 is trained on in the last step, so it is the first one that the page shows.
        long = "x" * 1_000_000 if "-25" in example.id else ""
        return Feedback(float(right), HOSTILE + long if right else f"say yes\nwrite {HOSTILE}")


def recipe_of(method: str = "fst", steps: int = 7) -> Recipe:
    return build_recipe(
        {
            **{"method": method, "model": "none", "task": "given"},
            "slow": {"steps": steps, "problems": 4, "group": 4, "microbatch": 4},
            "fast": {
                "population": 2,
                "cycle": 3,
                "anchors": 6,
                "budget": 24,
                "minibatch": 2,
                "optimizer": {"proposer": "full"},
            },
            "evaluation": {"every": 2, "problems": 3, "k": 1},
            "output": {"checkpoint_every": 2, "save_rollouts": True},
        }
    )


def make_run(folder: Path, method: str = "fst", *, task: Numbered | None = None, fails_at: int | None = None) -> Path:
    """A run that has finished, or failed in one of its steps."""
    recipe, task, engine = recipe_of(method), task or Numbered(), FakeEngine()
    engine.fails_at = fails_at
    player = Player(task, engine, ChatFormat(engine.tokenizer))  # type: ignore[arg-type]
    before = Ledger()
    before.book("preflight", Entry(rollouts=1, calls=1, prompt_tokens=8, completion_tokens=2))
    with RunFolder.create(folder, recipe) as run:
        view = make_view(Console(file=io.StringIO()))
        loop = Loop(recipe, player, task.seed_texts, Lessons(), folder, run, view)
        try:
            loop.run(spent=before)
            run.set_status("finished", steps=recipe.slow.steps)
        except RuntimeError as error:
            run.set_status("failed", error=f"RuntimeError: {error}")
    return folder


def expecting(run: Path, folder: Path, *, older: bool = False) -> Path:
    """A copy of a run whose scores are expected, as those of `digest`; older files show it by the lines that it judged."""
    shutil.copytree(run, folder)
    line = {"component": "system", "line": "say yes", "problems": 7, "effect": 0.3, "deviation": 0.1}
    for path in folder.glob("contexts/cycle-*.json"):
        cycle = json.loads(path.read_text())
        for number, each in enumerate(cycle["population"]):
            each.update({} if older else {"drawn": [0.0, 36 * number]})
        edits = [{**edit, "before": 0.0, "after": None, "minibatch": []} for edit in cycle["edits"]]
        path.write_text(json.dumps({**cycle, "edits": edits, "lines": [line] if older else []}))
    return folder


@contextmanager
def serving(*folders: Path, **settings: Any) -> Iterator[str]:
    """A board over folders, in a thread; yields its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        make_app(Views(folders), **settings), log_level="error", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(10)
