"""The command that changes the core in one place and asks whether a test fails."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

sites = importlib.import_module("benchmarks.mutants_sites")
mutants = importlib.import_module("benchmarks.mutants")

SOURCE = '''"""A docstring with 1 < 2."""
LIMIT: int = 3


def near(a: int, b: int = 4) -> bool:
    assert a > 0, "left out"
    if not a and b <= LIMIT or a in (b,):
        a += 1
    return f"{a - 1}" if a - b * -a == 0 else True
'''


def found(tmp_path: Path) -> set[tuple[int, str]]:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "near.py").write_text(SOURCE)
    every = list(sites.sites(tmp_path, ("room",)))
    assert {mutant.file for mutant in every} == {"room/near.py"}
    assert {mutant.line for mutant in every if mutant.always} == {2, 5}
    return {(mutant.line, mutant.lines(SOURCE)[1]) for mutant in every}


def test_every_place_is_changed_once_in_each_way(tmp_path: Path) -> None:
    last = 'return f"{a - 1}" if a - b * -a == 0 else True'
    assert found(tmp_path) == {
        (2, "LIMIT: int = 4"),
        (5, "def near(a: int, b: int = 5) -> bool:"),
        (7, "if (a) and b <= LIMIT or a in (b,):"),
        (7, "if not a or b <= LIMIT or a in (b,):"),
        (7, "if not a and b < LIMIT or a in (b,):"),
        (7, "if not a and b > LIMIT or a in (b,):"),
        (7, "if not a and b <= LIMIT and a in (b,):"),
        (7, "if not a and b <= LIMIT or a not in (b,):"),
        (8, "a -= 1"),
        (8, "a += 2"),
        (9, last.replace("if a - b", "if a + b")),
        (9, last.replace("b * -a", "b / -a")),
        (9, last.replace("-a ==", "(a) ==")),
        (9, last.replace("==", "!=")),
        (9, last.replace("== 0", "== 1")),
        (9, last.replace("True", "False")),
    }


def test_a_change_concerns_the_lines_of_its_statement(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "near.py").write_text("def f(a):\n    return (\n        a\n        + 1\n    )\n")
    assert {(each.line, each.first, each.last) for each in sites.sites(tmp_path, ("room",))} == {(4, 2, 5)}


def test_a_change_is_undone_whatever_happens(tmp_path: Path) -> None:
    copy = mutants.Copy(tmp_path / "copy")
    mutant = next(each for each in sites.sites(mutants.PACKAGE, ("state",)))
    path, before = copy.package / "state.py", (mutants.PACKAGE / "state.py").read_text()
    with copy.changed(mutant):
        assert path.read_text() == mutant.apply(before) != before
    assert path.read_text() == before
    with pytest.raises(KeyboardInterrupt), copy.changed(mutant):
        raise KeyboardInterrupt
    assert path.read_text() == before == (mutants.PACKAGE / "state.py").read_text()


def test_a_module_has_the_tests_that_name_it_and_some_that_do_not() -> None:
    def names(module: str) -> set[str]:
        return {str(path.relative_to(mutants.TESTS)) for path in mutants.tests_of(module)}

    assert "fast/digest/test_effects.py" in names("fast/digest/effects.py")
    assert {"test_loop.py"} == names("loop.py")
    assert all(names(module) for module in ("runs/lock.py", "prefix/tree.py", "study/curves.py", "slow/losses.py"))


def test_answers_are_about_lines_that_exist() -> None:
    listed = tomllib.loads((mutants.ROOT / "benchmarks" / "mutants.toml").read_text()).get("equivalent", [])
    known = {
        (each.file, *each.lines((mutants.PACKAGE / each.file).read_text())) for each in mutants.drawn(10**6, 0, "")
    }
    for each in listed:
        assert (each["file"], each["before"], each["after"]) in known, each
        assert each["why"].strip()
