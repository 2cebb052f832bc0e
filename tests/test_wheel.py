"""The wheel: built without a network, it holds every file of the package."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from helpers import ROOT

pytest.importorskip("setuptools", "77")  # pyproject.toml needs it


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that nothing is left in the repository."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (copy / "src" / "fastslow" / "models" / "nano" / "model.safetensors").write_bytes(b"")  # it takes long to compress
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, copy / "dist"], cwd=copy, check=True, capture_output=True)
    (built,) = (copy / "dist").glob("fastslow-*.whl")
    return zipfile.ZipFile(built)


def test_it_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    files = [path.relative_to(source) for path in (source / "fastslow").rglob("*") if path.is_file()]
    expected = {path.as_posix() for path in files if "__pycache__" not in path.parts}
    held = {name for name in wheel.namelist() if name.startswith("fastslow/")}
    assert held == expected
    assert {"fastslow/study/quickstart.yaml", "fastslow/models/nano/model.safetensors", "fastslow/py.typed"} <= held


def test_it_has_a_command_a_licence_and_what_a_package_index_shows(wheel: zipfile.ZipFile) -> None:
    (folder,) = {Path(name).parts[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert "fastslow = fastslow.commands.app:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert f"{folder}/licenses/LICENSE" in wheel.namelist()
    shown = Parser().parsestr(wheel.read(f"{folder}/METADATA").decode())
    assert shown["License-Expression"] == "Apache-2.0"
    assert shown["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in shown.get_all("Classifier", [])
    assert shown.get_all("Project-URL") == ["Paper, https://arxiv.org/abs/2605.12484"]
    assert shown.get_payload().startswith("# fastslow")  # type: ignore[union-attr]
