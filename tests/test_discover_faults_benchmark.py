"""A small search among failing evaluations: every one is counted, and nothing is announced that does not hold."""

from __future__ import annotations

import subprocess
import sys

from helpers import ROOT


def test_a_search_among_faults_that_is_killed_loses_nothing() -> None:
    arguments = ["--evaluations", "64", "--kills", "1", "--workers", "4"]
    command = [sys.executable, "-m", "benchmarks.discover_faults", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all checks pass" in done.stdout
    assert "unverified" in done.stdout
