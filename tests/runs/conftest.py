"""What the tests of the runs room share: a recipe and real second processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from run_helpers import Start

from fastslow.recipe import Recipe, build_recipe


@pytest.fixture
def recipe() -> Recipe:
    return build_recipe(
        {"model": "nano", "task": {"name": "star-graph", "arms": 3}, "slow": {"steps": 20}, "seed": 7, "method": "fst"}
    )


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python code as another process; whatever of it is left at the end of the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
