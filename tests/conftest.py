import os

os.environ.setdefault("CI", "1")  # TRL sends no telemetry
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import fastslow  # noqa: F401  sets the thread policy, so before anything imports torch

# isort: split
from pathlib import Path

import pytest
import tiny
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model saved as a standard folder."""
    return tiny.save(tmp_path_factory.mktemp("tiny"))
