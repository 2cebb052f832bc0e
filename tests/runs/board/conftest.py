from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from board_helpers import make_run

from fastslow.runs import files


@pytest.fixture(scope="session", autouse=True)
def _no_disk() -> Iterator[None]:
    """Nothing here is about power cuts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", lambda path: None)
        yield


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, not to be written to."""
    return make_run(tmp_path_factory.mktemp("finished") / "fst")
