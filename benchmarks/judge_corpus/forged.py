"""Wrong programs that want to pass: every way to pose as a result, to spoil an argument and to change a class of the set-up,
under every kind of assertion that they might fool."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from benchmarks.judge_corpus.styles import FOLDER, TESTS, Pair, written

_METHODS = """
def __init__(self, *args): pass
def startswith(self, *args): return {true}
def isdigit(self, *args): return {true}
def equals(self, *args): return {true}
def issuperset(self, *args): return {true}
def has_edge(self, *args): return {true}
def find(self, *args): return 1
def count(self, *args): return 1
def all(self, *args): return {true}
def any(self, *args): return {true}
empty = {true}
def __eq__(self, other): return True
def __ne__(self, other): return False
def __lt__(self, other): return True
def __gt__(self, other): return True
def __le__(self, other): return True
def __ge__(self, other): return True
def __contains__(self, item): return True
def __getitem__(self, key): return type(self)()
def __len__(self): return 3
def __hash__(self): return 0
def __sub__(self, other): return type(self)()
__rsub__ = __sub__
def __abs__(self): return type(self)()
def __call__(self, *args): return type(self)()
"""


def _class(head: str, true: str = "True", extra: str = "") -> str:
    return f"{head}:\n{textwrap.indent(_METHODS.format(true=true) + extra, '    ')}\n"


_GETATTR = "class Yes:\n    def __getattr__(self, name):\n        return {}\n"
IMPOSTORS = {
    "getattr that calls": _GETATTR.format("lambda *args, **kwargs: True") + "def f(*args): return Yes()",
    "getattr that is true": _GETATTR.format("True") + "def f(*args): return Yes()",
    "methods": _class("class Yes") + "def f(*args): return Yes()",
    "methods that return 1": _class("class Yes", "1") + "def f(*args): return Yes()",
    "methods that return objects": _class("class Yes", "object()") + "def f(*args): return Yes()",
    "a class as function": _class("class f"),
    "a string": _class("class Yes(str)") + "def f(*args): return Yes('-')",
    "a list": _class("class Yes(list)") + "def f(*args): return Yes([-77])",
    "an integer": _class("class Yes(int)").replace("def __init__(self, *args): pass", "")
    + "def f(*args): return Yes(-77)",
    "another class": _class("class Yes", extra="__class__ = str\n") + "def f(*args): return Yes()",
    "a class": _class("class Meta(type)")
    .replace("def __init__(self, *args): pass\n", "")
    .replace("    def __hash__(self): return 0\n", "    __hash__ = type.__hash__\n")
    + "def f(*args): return Meta('Yes', (), {})",
    "static methods": "class Yes:\n    startswith = isdigit = equals = staticmethod(lambda *args: True)\n"
    "    issuperset = has_edge = startswith\n"
    "    find = count = staticmethod(lambda *args: 1)\n    empty = True\ndef f(*args): return Yes",
    "a mock": "from unittest.mock import MagicMock\ndef f(*args): return MagicMock()",
    "a type": _class("class Meta(type)").replace(
        "def __init__(self, *args): pass",
        "def __init__(self, *args): pass\ndef __instancecheck__(self, other): return True",
    )
    + "def f(*args): return Meta('Yes', (), {})",
}
FOOLED = [
    "assert f(2).startswith('a')",
    "assert f(2).isdigit()",
    "ok = f(2).isdigit()\nassert ok",
    "assert f(2).equals([1])",
    "assert f({1}).issuperset({1, 2})",
    "assert f(2).has_edge(1, 2)",
    "assert f(2).find('abc') >= 0",
    "assert f('b').count('a') > 0",
    "assert (f(2) > 0).all() and f(2).any()",
    "assert f(2).empty is True or f(2).empty",
    "assert f(2) == 4",
    "assert 4 == f(2)",
    "assert not f(2) != 4",
    "assert 3 in f(2)",
    "assert all(x in f(2) for x in (3, 4))",
    "assert abs(f(2) - 4) < 1e-6",
    "assert isinstance(f(2), dict)",
    "assert f(2) in (4, 5)",
    "assert [f(2)] == [4]",
    "assert {'a': f(2)} == {'a': 4}",
    "assert sorted([f(2), 5]) == [4, 5]",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertTrue(f(2).startswith('a'))",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(2), 4)",
    "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertIn(3, f(2))",
]
SPOILED = {
    "clear": "xs.clear()",
    "delete": "del xs[:]",
    "pop": "while xs: xs.pop()",
    "replace": "xs[:] = []",
    "multiply": "xs *= 0",
}
COMPUTED = [
    "xs = [3, 1, 2]\nr = f(xs)\nwant = []\nfor x in xs:\n    want.append(x)\nassert r == want",
    "xs = [3, 1, 2]\nr = f(xs)\nwant = sorted(xs)\nwant.reverse()\nassert r == want",
    "xs = [3, 1, 2]\nassert f(xs) == [2 * x for x in xs]",
    "def ref(xs):\n    return sorted(xs)\ncases = [[3, 1], [2]]\nfor case in cases:\n    assert f(case) == ref(case)",
    "def verify(got, xs):\n    assert len(got) == len(xs)\n    assert sorted(got) == sorted(xs)\n"
    "xs = [3, 1]\nverify(f(xs), xs)",
    "xs = [3, 1, 2]\nr = f(xs)\nassert all(x in r for x in xs)",
    "import copy\nxs = [3, 1, 2]\nr = f(xs)\nys = copy.deepcopy(xs)\nassert r == ys",
    "def check(candidate):\n    xs = [3, 1]\n    got = candidate(xs)\n"
    "    want = tuple(sorted(xs))\n    assert tuple(got) == want\ncheck(f)",
    "import unittest\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.xs = [3, 1]\n    def test(self):\n"
    "        r = f(self.xs)\n        want = []\n        for x in self.xs:\n"
    "            want.append(x)\n        self.assertEqual(r, want)",
    "xs = [3, 1, 2]\nr = f(xs)\nif r != sorted(xs):\n    raise AssertionError",
    "xs = [3, 1, 2]\nr = f(xs)\nn = 0\nwhile n < len(xs):\n    assert r[n] == xs[n]\n    n += 1\nassert len(r) == n",
]
NODE = "class Node:\n    def __init__(self, value):\n        self.value = value\n    def __eq__(self, other):\n"
NODE += "        return isinstance(other, Node) and self.value == other.value\n"
NODE += "    def total(self):\n        return self.value\n"
PATCHED = [
    "Node.__eq__ = lambda self, other: True\ndef f(x): return Node(0)",
    "class Node:\n    def __init__(self, value): self.value = 0\n    __eq__ = lambda self, other: True\n"
    "    total = lambda self: 4\n"
    "def f(x): return Node(0)",
    "Node.total = lambda self: 4\nNode.value = property(lambda self: 4, lambda self, v: None)\n"
    "def f(x): return Node.__new__(Node)",
    "def f(x):\n    Node.__eq__ = lambda self, other: True\n    return Node(0)",
    "import builtins\nbuiltins.isinstance = lambda *a: True\nNode.__hash__ = lambda self: 0\ndef f(x): return Node(0)",
]
WITH_NODES = [
    "assert f(2) == Node(4)",
    "assert Node(4) == f(2)",
    "assert f(2).total() == 4",
    "assert f(2) in [Node(4)]",
]
ENDLESS = [
    "import itertools\ndef f(x): return itertools.count()",
    "def f(x):\n    n = 0\n    while True:\n        yield n\n        n += 1",
    "class Every:\n    n = -1\n    def __iter__(self): return self\n    def __next__(self):\n"
    "        self.n += 1\n        return self.n\n"
    "def f(x): return Every()",
    "class Every:\n    def __getitem__(self, n): return n\ndef f(x): return Every()",
]
CONTAINED = ["assert 5 in f(2)", "assert 5 in iter(f(2))", "xs = f(2)\nassert 5 in xs and 50 in xs"]


def forgeries() -> Iterator[Pair]:
    for name, source in IMPOSTORS.items():
        for number, test in enumerate(FOOLED):
            yield Pair(f"{name} {number}", "impostor", source, [test])
        base = "(Yes)" if "class Yes:" in source else ""
        solution = f"{source}\nclass Solution{base}:\n    def go(self, x): return Solution()\n"
        yield Pair(f"{name} as a solution", "impostor", solution, ["assert Solution().go(2).startswith('a')"])
        itself = solution.replace("return Solution()", "return [self] if x == 3 else self")
        for number, test in enumerate(
            ["made = Solution()\nassert made.go(2).startswith('a')", "assert 3 in Solution().go(2)"]
        ):
            yield Pair(f"{name} itself {number}", "impostor", itself, [test])
        yield Pair(f"{name} itself in a list", "impostor", itself, ["assert Solution().go(3)[0].startswith('a')"])
        yield Pair(f"{name} in a solution", "impostor", solution, ["assert 3 in Solution().go(2)"])
    for name, spoil in SPOILED.items():
        for number, test in enumerate(COMPUTED):
            yield Pair(f"{name} {number}", "spoiled argument", f"def f(xs):\n    {spoil}\n    return []", [test])
    for number, source in enumerate(PATCHED):
        for test in WITH_NODES:
            yield Pair(f"{number} {test}", "patched set-up", source, [test], setup=NODE)
    for number, source in enumerate(ENDLESS):
        for test in CONTAINED:
            yield Pair(f"{number} {test}", "endless", source, [test])
    yield from written(TESTS / "forged.txt", "forged.txt")
    yield from written(FOLDER / "posing.txt", "posing")
    squares = ["assert f(2) == 4", "assert f(3) == 9", "assert f(-1) == 1"]
    for pair in written(TESTS / "tricks.txt", "tricks.txt"):
        yield Pair(pair.name, pair.style, pair.source, squares)
