from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def _session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache(_session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that all tests share and the user's own one is spared."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(_session_cache))
    return _session_cache / "fastslow"


@pytest.fixture
def verifiers_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments of verifiers, where the library finds installed ones."""
    monkeypatch.syspath_prepend(Path(__file__).parent / "adapters" / "verifiers_packages")
