"""Processes that are forked from one that has already imported torch, transformers and the engine, which takes seconds.

What they do is real; only the interpreter's start and the launcher are left out. These are tested in tests/base/test_world.py
and in tests/commands.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from helpers import ROOT
from torch.distributed import TCPStore

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["fastslow.commands.app", "fastslow.launch.start", "fastslow.engine.local.engine"])
LONGEST = 900


def _child(environment: dict[str, str], output: str | None, work: Callable[..., object], *given: Any) -> None:
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    if output is not None:
        with open(output, "ab") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
    work(*given)


def fork(
    work: Callable[..., object], *given: Any, environment: Mapping[str, str], output: str | None = None
) -> multiprocessing.process.BaseProcess:
    """Call a function in a process of its own, with this environment beside that of here; what it says goes to a file."""
    process = CONTEXT.Process(target=_child, args=({**os.environ, **environment}, output, work, *given))
    process.start()
    return process


def fork_two(work: Callable[..., object], *given: Any, environment: Mapping[str, str] | None = None) -> None:
    """Call a function in two processes that find each other, as under `torch.distributed.run`; one that fails ends both."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {**(environment or {}), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    shared |= {"LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    ranks = [fork(work, *given, environment=shared | {"RANK": rank, "LOCAL_RANK": rank}) for rank in "01"]
    try:
        running = ranks
        while running:
            assert wait([rank.sentinel for rank in running], LONGEST), f"not finished after {LONGEST} seconds"
            assert not any(rank.exitcode for rank in ranks), [rank.exitcode for rank in ranks]
            running = [rank for rank in running if rank.exitcode is None]
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def type_in(arguments: Sequence[str | Path]) -> None:
    """The command line, as a user would type it."""
    from fastslow.commands.app import main

    main(list(map(str, arguments)))


class Popen:
    """`subprocess.Popen` of the command line, with what `fastslow.study` asks of it."""

    def __init__(self, command: Sequence[str], *, stdin: int, stdout: Any, stderr: int, env: Mapping[str, str]) -> None:
        assert list(command[:3]) == [sys.executable, "-m", "fastslow"]
        assert (stdin, stderr) == (subprocess.DEVNULL, subprocess.STDOUT)
        self._process = fork(type_in, command[3:], environment=env, output=stdout.name)

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self) -> None:
        self._process.join()
