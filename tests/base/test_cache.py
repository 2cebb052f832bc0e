"""A folder of the cache is made once, whole or not at all."""

from pathlib import Path

import pytest

from fastslow.base.cache import made_once
from fastslow.base.errors import FastSlowError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "fastslow"


def write(text: str, folder: Path) -> None:
    (folder / "file").write_text(text)


def test_a_second_call_finds_what_the_first_has_made(home: Path) -> None:
    folder = made_once("kind", "key", lambda folder: write("first", folder))
    assert folder == home / "kind" / "key"
    assert made_once("kind", "key", lambda folder: write("second", folder)) == folder
    assert (folder / "file").read_text() == "first"


def test_a_failure_leaves_nothing(home: Path) -> None:
    def fail(folder: Path) -> None:
        write("half", folder)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        made_once("kind", "key", fail)
    assert list((home / "kind").iterdir()) == []


def test_what_another_process_made_meanwhile_stays(home: Path) -> None:
    def slow(folder: Path) -> None:
        made_once("kind", "key", lambda folder: write("quicker", folder))
        write("slower", folder)

    assert (made_once("kind", "key", slow) / "file").read_text() == "quicker"
    assert [path.name for path in (home / "kind").iterdir()] == ["key"]


def test_a_cache_that_cannot_be_written_is_one_error(home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(FastSlowError, match=r"cache folder '.*kind' cannot be written .*; set XDG_CACHE_HOME"):
        made_once("kind", "key", lambda folder: None)
