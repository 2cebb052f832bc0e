"""However a run ends, its folder says so."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.console import Console

from fastslow.base.errors import FastSlowError, Interrupted, RunError
from fastslow.base.world import World
from fastslow.launch.start import ending
from fastslow.recipe import build_recipe
from fastslow.runs.files import nothing_left_behind
from fastslow.runs.folder import RunFolder
from fastslow.runs.view import make_view


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """The handlers of a process in the foreground: one started by nohup or in the background ignores some signals."""
    usual: dict[int, Any] = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def fail() -> NoReturn:
    raise ValueError("broken")


@pytest.mark.parametrize("task", ["rulebook", "given"])
@pytest.mark.parametrize(
    ("end", "raised", "status", "error"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGTERM), Interrupted, "interrupted", "Stopped: SIGTERM"),
        (lambda: os.kill(os.getpid(), signal.SIGHUP), Interrupted, "interrupted", "Stopped: SIGHUP"),
        (lambda: os.kill(os.getpid(), signal.SIGINT), Interrupted, "interrupted", "KeyboardInterrupt:"),
        (lambda: sys.exit(0), RunError, "failed", "SystemExit: 0"),
        (fail, ValueError, "failed", "ValueError: broken"),
        (lambda: bytes(2**62) and None, MemoryError, "failed", "out of memory"),
    ],
)
def test_the_folder_says_how_the_run_ended(
    end: Callable[[], None], raised: type[BaseException], status: str, error: str, task: str, tmp_path: Path
) -> None:
    recipe = build_recipe({"model": "nano", "task": task})
    run = RunFolder.create(tmp_path / "run", recipe)
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    with pytest.raises(raised) as caught, ending(run, run.path, make_view(Console(quiet=True)), World(), recipe):
        end()
    if issubclass(raised, FastSlowError):
        called = f'fastslow.resume("{run.path}", task=…)'
        again = called if task == "given" else f"fastslow train --resume {run.path}"
        assert f"resume with `{again}`" in str(caught.value)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)] == handlers
    known = RunFolder.open(run.path, lock=True).read_json("run.json")  # and the lock is free
    assert known is not None
    assert (known["status"], known["error"]) == (status, error)


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending(
            None, tmp_path, make_view(Console(quiet=True)), World(), build_recipe({"model": "nano", "task": "given"})
        ):
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("used", [False, True])
def test_a_failure_leaves_no_empty_folder_behind(used: bool, tmp_path: Path) -> None:
    place = tmp_path / "a" / "b" / "run"

    def begin() -> None:
        with nothing_left_behind(place):
            place.mkdir(parents=True)
            if used:
                (place / "notes").write_text("mine")
            fail()

    with pytest.raises(ValueError, match="broken"):
        begin()
    assert (tmp_path / "a").exists() == used
