"""The command that changes the core in one place and asks whether a test fails."""

from __future__ import annotations

import builtins
import importlib
import json
import subprocess
import sys
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


def test_marks_say_which_statements_of_functions_are_reached_and_change_nothing_else() -> None:
    source = '''"""A docstring."""
from __future__ import annotations
import math
LIMIT = 3
def sign(a):
    """Of a number."""
    if a > LIMIT:
        return 1
    elif a < -LIMIT:
        return -1
    try:
        return math.nan if (lambda: a)() is None else 0
    finally:
        a += 1
class Named:
    """A name."""
    name: str = "x"
    async def of(self): return self.name
'''
    reached: set[tuple[str, int]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builtins, sites.REACHED, reached.add, raising=False)
        exec(compile(sites.with_marks(source, "room/sign.py"), "sign.py", "exec"), made := {"__name__": "sign"})
        assert (made["__doc__"], made["sign"].__doc__, made["Named"].__doc__) == (
            "A docstring.",
            "Of a number.",
            "A name.",
        )
        assert not reached
        for value, lines in ((4, {7, 8}), (-4, {7, 9, 10}), (0, {7, 9, 11, 12, 14})):
            reached.clear()
            assert made["sign"](value) == (value > 0) - (value < 0)
            assert reached == {("room/sign.py", line) for line in lines}
    exec(compile(sites.with_marks(source, "room/sign.py"), "sign.py", "exec"), alone := {"__name__": "sign"})
    assert alone["sign"](4) == 1, "also where nothing listens"


def test_what_a_test_reaches_is_found_for_each_and_for_those_that_share_what_one_has_made(tmp_path: Path) -> None:
    listen = f"import builtins, pytest\n\ndef reach(line):\n    builtins.{sites.REACHED}(('room/near.py', line))\n\n"
    (tmp_path / "test_near.py").write_text(
        listen + "@pytest.fixture(scope='module')\ndef made():\n    kept = []\n    def make():\n        if not kept:\n"
        "            kept.append(reach(7))\n    return make\n\n"
        "def test_first(made):\n    made()\n\ndef test_second(made):\n    made()\n    reach(8)\n\n"
        "def test_alone():\n    reach(9)\n\ndef test_fails():\n    reach(10)\n    assert False\n"
    )
    code = (
        "import json, sys, pytest; from benchmarks.mutants import Reach; reach = Reach(); "
        "pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[1]], plugins=[reach]); "
        "print(json.dumps({name.split('::')[1]: each['lines'] for name, each in reach.found.items()}))"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "test_near.py")]
    told = subprocess.run(run, cwd=mutants.ROOT, capture_output=True, text=True, check=True).stdout
    assert json.loads(told.splitlines()[-1]) == {
        "test_first": {"room/near.py": [7, 8]},  # as all that share it
        "test_second": {"room/near.py": [7, 8]},
        "test_alone": {"room/near.py": [9]},
        "test_fails": {},
    }


def test_what_is_known_of_tests_holds_until_something_that_they_reach_changes(tmp_path: Path) -> None:
    place, tests = tmp_path / "kept.json", {"test": {"seconds": 1.0, "lines": {"state.py": [7]}}}
    assert mutants._reach(place) is None
    source = {"state.py": mutants._digest(mutants.PACKAGE / "state.py")}
    place.write_text(json.dumps({"source": source, "tests": tests}))
    assert mutants._reach(place) == tests
    for other in ({"state.py": "another"}, {**source, "gone.py": "x"}):
        place.write_text(json.dumps({"source": other, "tests": tests}))
        assert mutants._reach(place) is None
