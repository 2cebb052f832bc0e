"""The judge: tests run as they are written, where the answer cannot reach them. Right programs pass; forgeries do not."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from fastslow.sandbox import run_tests

styles: Any = importlib.import_module("benchmarks.judge_corpus.styles")
forged: Any = importlib.import_module("benchmarks.judge_corpus.forged")

PASS = (1.0, "Correct: all tests pass.")
RIGHT = [
    "expected reversed in place", "append", "heap", "dict", "a random list", "random pairs",  # expected values in steps
    "contains", "float", "ctx", "ctxclass", "async", "asyncgen", "an async context", "async cases",  # protocols
    "setup inplace", "setup redefined", "a list with a cycle", "a tree of the set-up",  # classes of the set-up
    "sorts inside", "inplace prop", "remove dup", "pop loop", "a grid in place", "nested results in place",  # in place
    "lru", "vectors", "shapes", "an account", "a frozen record", "flags", "unnamed list", "regular expressions",  # objects
    "mock time", "mock open", "a mock as argument", "printed text patched", "inputs patched", "stdin", "seed",  # surroundings
    "a log that is kept", "a list that the test goes on changing", "an attribute that is a list again", "a context that logs",
    "a context that logs again", "a graph's own dict", "a part of an argument", "a list of nodes that is kept",  # shared
    "environment patched", "a log of the module", "recorded warnings", "a patched logger", "a mock's assertion alone",
    "retried", "an array in place", "a grouped table", "module import", "test_fn",
    "exceptions with attributes", "exception with own str", "exception hierarchy", "exception made by the test",
    "exception groups", "mock patch of an object's method", "mock open and print",
    "main with sys argv and exit codes", "environment and cwd", "reversed and index", "generic stack class",
    "rational sum and comparison to int", "inplace operators on containers",
    "numpy errors and dtype", "dataclass of the test",
    "zoneinfo datetime", "timezone returned", "array module", "http status", "struct time", "mapping proxy",  # values
    "simple namespace", "argparse", "namespace with flags and names of data", "namedtuple with functions", "userlist",
    "library error from a mock", "element tree to string", "signature and doc", "tee zip", "copy of an iterator class",
    "numpy unseeded with sort in place", "default_rng unseeded in place", "Random object unseeded in place",  # run twice
    "system random in place", "uuid in place", "random sequences of a seeded test stay",
    "evaluated expression", "evaluated with a variable", "evaluated repr", "pickled data", "pickled arrays",  # code in tests
    "class imported under another name", "class that compares with its own", "class whose text is compared",
    "capitalised function", "big lists in place", "many cases in place",
    "chainmap equals", "urllib and ipaddress and uuid", "nan within containers", "identity of what is given back",
    "memoize identity", "mutable defaults and aliasing", "a list of the module given again",  # the same again
    "async semaphores concurrency", "coroutines of the test", "events by class", "filters by a class of the test",
    "checks of annotations", "types of the library given", "datetime now patched",  # functions and classes that are lent
    "protocol checks on the test's objects", "generator protocols", "getattr and attribute dicts",
    "words of one object leave others alone", "arithmetic of a float of its own",
    "leetcode remove duplicates custom judge", "leetcode design with operations list", "leetcode interactive guess api",
    "test patches a global of the answer", "patch helper by module name", "monkeypatch by hand",  # replaced by the test
    "warning class of its own expected",
]  # fmt: skip
SPECIAL = {pair.name: pair for pair in styles.written(styles.FOLDER / "special.txt", "special")}
GENERATED = list(styles.generated("right"))[::23]
SHARED = (
    "context manager",
    "another error",
    "system exit",
    "exception renamed",
    "emptied later",
    "ends early",
    "when more is known",
    "given away",
    "its own data",
    "callable fields",
    "as result with",
    "instance attribute",
    "mock",
    "hypothesis",
    "capitalised",
    "deep argument",
    "emptied under",
    "emptied in",
    "emptied deep",
    "elements emptied",
    "pickled",
    "evaluat",
    "an expression that",
    "executed",
    "imported file",
    "marshalled",
    "types as",
    "a class of its own as a method",
    "operator gives",
    "fooled",
    "difference",
    "solution object minus",
    "with a verdict",
    "the test's object",
    "an object of the test",
    "dataclass of the test",
    "return value set",
    "endless rows",
    "at a negative place",
    "over the wire",
    "sourceless",
    "run by path",
    "run from a zip",
    "nonlocal accumulations",
    "match emptied",
    "assertion in a decorated test",
    "swallowed doubt",
)
FORGED = [
    *list(forged.forgeries())[::9],
    *(pair for pair in forged.forgeries() if pair.style == "endless" or any(part in pair.name for part in SHARED)),
]


def judged(pair: Any) -> tuple[float, str]:
    return run_tests(
        pair.source, pair.tests, entry=pair.entry, setup=pair.setup, packages=pair.packages, seconds=20, megabytes=2048
    )


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_passes_whatever_the_test_does(name: str) -> None:
    assert judged(SPECIAL[name]) == PASS


@pytest.mark.parametrize("pair", GENERATED, ids=lambda pair: f"{pair.name}, {pair.style}")
def test_every_style_of_test_is_run(pair: Any) -> None:
    assert judged(pair) == PASS


@pytest.mark.parametrize("pair", FORGED, ids=lambda pair: f"{pair.style}, {pair.name}")
def test_a_forgery_is_never_accepted(pair: Any) -> None:
    assert judged(pair)[0] == 0


@pytest.mark.parametrize(
    ("source", "test", "why"),
    [
        (
            "class Yes:\n    def __getattr__(self, name): return lambda *a: True\ndef f(x): return Yes()",
            "assert f(1).startswith('a')",
            "it rests on the word of an object in the place of data (`__call__`)",
        ),
        (
            "class Bag:\n    def __contains__(self, x): return True\ndef f(x): return Bag()",
            "assert 3 in f(1)",
            "it rests on what `Bag`, a class that the test does not name, says of itself",
        ),
        (
            "def f(xs):\n    xs.clear()\n    return []",
            "xs = [3, 1]\ngot = f(xs)\nwant = []\nfor x in xs:\n    want.append(x)\nassert got == want",
            "what it expects is computed from an argument that the code changed",
        ),
        (
            "import itertools\ndef f(): return itertools.count()",
            "assert 5 in f()",
            "`in` is asked of an iterator that gives more than 10000 elements",
        ),
        ("def f(): return '(lambda: 4)()'", "assert eval(f()) == 4", "it runs code that is not in the test"),
        (
            "import pickle\nclass P:\n    def __reduce__(self): return eval, ('4',)\ndef f(): return pickle.dumps(P())",
            "import pickle\nassert pickle.loads(f()) == 4",
            "it unpickles `builtins.eval`",
        ),
        (
            "from collections import namedtuple\ndef f(): return namedtuple('R', 'isdigit')(lambda: True)",
            "assert f().isdigit()",
            "it rests on the word of an object in the place of data (`__call__`)",
        ),
        ("class A: pass", "class B(A): pass\nassert B()", "the test derives a class from one of the code's"),
    ],
)
def test_what_cannot_be_judged_says_so(source: str, test: str, why: str) -> None:
    score, words = run_tests(source, [test], seconds=30)
    assert score == 0
    first, advice = words.split("\n")
    assert f"the result cannot be judged: {why}." in first
    assert advice.startswith("Return plain data")
    assert "cannot be judged.\n" in run_tests(source, [test], seconds=30, shown=0)[1]


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        ("def f(x): return x", "def test_it():\n    assert f(2) == 4"),
        ("def f(x): return x", "def check(candidate):\n    assert candidate(2) == 4"),
        (
            "import unittest\ndef f(x): raise unittest.SkipTest",
            "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(2), 4)",
        ),
    ],
    ids=["pytest", "a check that nobody calls", "a skipped test"],
)
def test_a_test_that_reaches_no_assertion_passes_nothing(wrong: str, test: str) -> None:
    assert run_tests(wrong, [test])[0] == 0


def test_the_answer_cannot_look_into_what_it_is_given() -> None:
    """Functions, objects and generators of a test are lent for use: what they are made of stays with the judge."""
    source = """
def f(thing):
    found = []
    for path in ('__globals__', '__closure__', 'gi_frame', '__self__', '__class__', '__dict__', 'secret.__globals__'):
        try:
            value = thing
            for name in path.split('.'):
                value = getattr(value, name)
            found.append(str(value))
        except Exception:
            pass
    return 'sesame' in ''.join(found)
"""
    test = """
secret_word = 'sesame'
def function(x, word=secret_word):
    return lambda: secret_word
class Thing:
    def __init__(self): self._word = secret_word
    def secret(self): return 1
def generator():
    word = secret_word
    yield 1
for lent in (function, Thing(), generator(), Thing().secret):
    assert f(lent) is False
"""
    assert run_tests(source, [test]) == PASS
