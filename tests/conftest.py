import os
import sys
from pathlib import Path

os.environ.setdefault("CI", "1")  # TRL sends no telemetry
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parent))

import pytest
import tiny

import fastslow  # noqa: F401  sets the thread policy before torch is imported


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model saved as a standard folder."""
    return tiny.save(tmp_path_factory.mktemp("tiny"))
