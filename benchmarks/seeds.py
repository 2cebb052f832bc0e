"""Several seeds of a benchmark at a time, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def side_by_side(commands: Sequence[Sequence[str]], jobs: int) -> None:
    """Run commands, so many at a time, in their order; one that fails ends the program."""
    waiting = list(commands)
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(subprocess.Popen(waiting.pop(0)))
        if running.pop(0).wait():
            sys.exit("a seed failed")
