"""Whether a test that the answer passed shows anything, where the answer changed its arguments.

Functions may work in place, and `f(xs); assert xs == [1, 2]` sees what they did. But an answer that empties its argument
could so empty the expected value too, where the test computes that from the argument later: `got = f(xs); assert got ==
sorted(xs)`. So the test runs again, without the answer: what that said is repeated word for word. The first time follows
which variables come from the answer and which from changed arguments. An assertion that compares the one with the other must
also hold the second time, when arguments stay as they were given.
"""

from __future__ import annotations

import ast
import gc
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from .handles import Handle, Mirror
from .pieces import JUDGE, is_assertion, names_of

ANSWER, CHANGED = "answer", "changed"
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert, ast.Raise)
_BRANCHES = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MANY, _TOO_MANY = 10_000, -1
ATOMS = frozenset((type(None), bool, int, float, str, bytes))
ATOM = "atom"
"""In the place of what was there before, where nothing but such a value was set in an object of the test."""
_ELSEWHERE = (Handle, Mirror, ModuleType, FunctionType, FrameType, CodeType)
"""Kinds of values that lead to all there is, and are known otherwise."""


class _Diverged(BaseException):
    """The test does something else than before."""


class Recorder:
    """Keeps what goes through a channel."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._sent: list[str] = []
        self._received: list[Any] = []

    def send(self, message: dict[str, Any]) -> None:
        self._sent.append(str(message.get("do")))
        self._channel.send(message)

    def receive(self) -> Any:
        self._received.append(self._channel.receive())
        return self._received[-1]

    def again(self) -> _Repeated:
        return _Repeated(iter(self._sent), iter(self._received))


class _Repeated:
    def __init__(self, sent: Any, received: Any) -> None:
        self._sent, self._received = sent, received

    def send(self, message: dict[str, Any]) -> None:
        if next(self._sent, "") != str(message.get("do")):
            raise _Diverged

    def receive(self) -> Any:
        for message in self._received:
            return message
        raise _Diverged


class Examination:
    """A second run of the tests."""

    changes_count: bool
    """Whether arguments change as the answer changed them."""

    def __init__(self) -> None:
        self._judge: Any = None

    def start(self, judge: Any) -> None:
        self._judge = judge

    def rewriter(self, number: int) -> Callable[[ast.Module], ast.Module]:
        raise NotImplementedError


def examine(play: Callable[[Examination], dict[str, Any]]) -> str:
    """Why the tests show nothing, if so."""
    flow = Flow()
    if play(flow)["verdict"] != "passed":
        return "it does not run the same way twice, and the code changes its arguments"
    if flow.cut_short:
        return "the code changed what the test loops over"
    if flow.suspects:
        given = _AsGiven(flow.suspects)
        if play(given)["verdict"] != "passed" or given.failed:
            return "what it expects is computed from an argument that the code changed"
    return ""


class Flow(Examination):
    """Follows what comes from the answer and from changed arguments, by the names of variables."""

    changes_count = True

    def __init__(self) -> None:
        super().__init__()
        self.suspects: set[tuple[int, int, int]] = set()
        """Assertions that compare the one with the other: the number of the test, line and column."""
        self.cut_short = False
        """Whether the answer changed, behind its back, what a loop with assertions goes through."""
        self._began: dict[Any, int] = {}
        self._number = 0
        self._functions: dict[str, set[str]] = {}
        self._origins: dict[tuple[str, str], set[str]] = {}
        self._elsewhere: dict[tuple[str, str], str] = {}
        self._statements: dict[int, tuple[str, set[str]]] = {}
        self._notes: list[tuple[Any, ...]] = []
        self._iterators: dict[int, tuple[Any, set[int]]] = {}

    def rewriter(self, number: int) -> Callable[[ast.Module], ast.Module]:
        self._number = number

        def rewrite(tree: ast.Module) -> ast.Module:
            for node in ast.walk(tree):
                if isinstance(node, _FUNCTIONS):
                    self._functions[node.name] = names_of(node)
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                    self._functions.update({name: names_of(node.value) for name in _stored(node)})
            tree.body = self._body(tree.body, "")
            return tree

        return rewrite

    def _body(self, statements: list[ast.stmt], scope: str) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in statements:
            if names := self._loop(statement):
                found.append(self._note("began", statement, scope))
            found += self._around(statement, scope)
            if names:
                found.append(self._note("ended", statement, scope, names))
        return found

    def _around(self, node: ast.stmt, scope: str) -> Iterable[ast.stmt]:
        """A statement with notes before and after."""
        if isinstance(node, ast.Nonlocal | ast.Global):
            above = scope.rpartition("/")[0] if isinstance(node, ast.Nonlocal) else ""
            self._elsewhere.update(((scope, name), above) for name in node.names)
        if isinstance(node, _SIMPLE):
            yield self._note("statement", node, scope, self._used(node))
        if isinstance(node, _BRANCHES):  # what it may change depends on what it asks, even where it does nothing
            yield self._note("moved", node, scope, self._used(_asked(node)), set(), _written(node))
        if isinstance(node, _FUNCTIONS):
            inner = f"{scope}/{node.name}"
            given = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
            node.body = [self._note("entered", node.body[0], inner, given), *self._body(node.body, inner)]
        else:
            for field in ("body", "orelse", "finalbody"):
                if isinstance(getattr(node, field, None), list):
                    setattr(node, field, self._body(getattr(node, field), scope))
            for handler in getattr(node, "handlers", getattr(node, "cases", ())):
                handler.body = self._body(handler.body, scope)
            if isinstance(node, ast.With | ast.AsyncWith):
                used = set().union(*(self._used(item.context_expr) for item in node.items))
                bound = set().union(*(_stored(item.optional_vars) for item in node.items if item.optional_vars))
                node.body.insert(0, self._note("moved", node, scope, used, bound, set()))
        yield node
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            whole = set() if isinstance(node, ast.AugAssign) else _stored(node)
            yield self._note("moved", node, scope, self._used(node), whole, _written(node) - whole)
        sides = self._sides(node)
        if sides is not None:
            yield self._note("checked", node, scope, sides, _is_bare(node))
        elif isinstance(node, ast.Expr):
            called = node.value.func if isinstance(node.value, ast.Call) else node
            yield self._note("did", node, scope, self._used(node), _written(node), names_of(called))

    def _loop(self, node: ast.stmt) -> set[str]:
        """The names that a loop with assertions goes through, or ends by."""
        loops = isinstance(node, ast.For | ast.AsyncFor | ast.While)
        checks = any(self._sides(each) is not None for each in ast.walk(node) if isinstance(each, ast.stmt))
        return names_of(_asked(node)) if loops and checks else set()

    def _note(self, kind: str, node: ast.stmt, *about: Any) -> ast.stmt:
        self._notes.append((kind, (self._number, node.lineno, node.col_offset), *about))
        call = ast.parse(f"{JUDGE}.examination.note({len(self._notes) - 1})").body[0]
        for each in ast.walk(call):
            ast.copy_location(each, node)
        return call

    def _used(self, node: ast.AST) -> set[str]:
        """The names that something is computed from, those in functions of the test that it calls among them."""
        names, new = set[str](), names_of(node)
        while new:
            names |= new
            new = set().union(*(self._functions.get(name, ()) for name in new)) - names
        return names

    def _sides(self, node: ast.stmt) -> list[set[str]] | None:
        """What an assertion compares, or all that it uses; None where there is no assertion."""
        if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)):
            test = node.test
            compares = isinstance(test, ast.Compare) and len(test.ops) == 1
            if compares and isinstance(test.ops[0], ast.Is | ast.IsNot):  # type: ignore[attr-defined]
                return [set(), set()]  # which object it is depends on no contents
            return [self._used(_looked_up(side)) for side in ([test.left, test.comparators[0]] if compares else [test])]  # type: ignore[attr-defined]
        if isinstance(node, ast.Expr) and is_assertion(node.value):
            given = node.value.args  # type: ignore[attr-defined]
            alone = node.value.func.attr in ("assertTrue", "assertFalse")  # type: ignore[attr-defined]
            return [self._used(_looked_up(argument)) for argument in given[: 1 if alone else 2]]
        return None

    def note(self, place: int) -> None:
        """Called by the test."""
        kind, key, scope, *about = self._notes[place]
        here = inspect.currentframe()
        assert here is not None
        assert here.f_back is not None
        frame = here.f_back
        match kind:
            case "began":
                self._began[key] = len(self._judge.late)
            case "ended":
                late = self._judge.late[self._began[key] :]
                self.cut_short = self.cut_short or any(id(_value(frame, name)) in late for name in about[0])
            case "statement":
                self._statements[id(frame)] = (scope, about[0])
                self._hold(frame, about[0])
            case "entered":
                outer: FrameType | None = frame.f_back
                while outer is not None and id(outer) not in self._statements:
                    outer = outer.f_back
                if outer is not None:
                    self._add(scope, about[0], self._of(outer, *self._statements[id(outer)]))
            case "did":  # what the answer does to its arguments is known otherwise
                used, partly, called = about
                if not any(isinstance(_value(frame, name), Handle | Mirror) for name in called):
                    self._add(scope, partly, self._of(frame, scope, used))
            case "moved":
                used, whole, partly = about
                origins = self._of(frame, scope, used)
                self._origins.update({self._home(scope, name): set(origins) for name in whole})
                self._add(scope, partly, origins)
            case "checked":
                self._judge.counted()
                sides = [self._of(frame, scope, used) for used in about[0]]
                every = set().union(*sides)
                apart = len(sides) == 2 and not all(sides)
                if CHANGED in every and not apart and (ANSWER in every or not (about[1] or self._rearranged())):
                    self.suspects.add(key)

    def _add(self, scope: str, names: set[str], origins: set[str]) -> None:
        for name in names:
            self._origins.setdefault(self._home(scope, name), set()).update(origins)

    def _home(self, scope: str, name: str) -> tuple[str, str]:
        """Where a variable is, which a function may have from around it."""
        while (scope, name) in self._elsewhere:
            scope = self._elsewhere[scope, name]
        return scope, name

    def _of(self, frame: FrameType, scope: str, names: set[str]) -> set[str]:
        found: set[str] = set()
        changed = self._judge.changes.keys()
        for name in names:
            value = _value(frame, name)
            if isinstance(value, Handle | Mirror):
                found.add(ANSWER)
            elif changed and not (_reached(value, changed) | self._behind(value)).isdisjoint({*changed, _TOO_MANY}):
                found.add(CHANGED)
            inner = scope
            while True:
                if (inner, name) in self._origins:
                    found |= self._origins[inner, name]
                    break
                if not inner:
                    break
                inner = inner.rpartition("/")[0]
        return found

    def _hold(self, frame: FrameType, names: set[str]) -> None:
        """Note what iterators lead to, which let go of what they have gone through."""
        for value in [_value(frame, name) for name in names]:
            if isinstance(value, Iterator) and not isinstance(value, Handle):
                self._iterators[id(value)] = (value, self._behind(value) | _reached(value))

    def _behind(self, iterator: Any) -> set[int]:
        """What an iterator has led to before."""
        known, reached = self._iterators.get(id(iterator), (None, set[int]()))
        return reached if known is iterator else set()

    def _rearranged(self) -> bool:
        """Whether all that was changed still has as many elements, or the same ones, so that nothing can be missing."""
        return all(
            before is ATOM
            or type(value).__name__ == "ndarray"
            or (isinstance(value, list) and sorted(map(repr, value)) == sorted(map(repr, before)))
            for value, before in self._judge.changes.values()
        )


class _AsGiven(Examination):
    """Arguments stay as they were given; assertions that fail do not end the test."""

    changes_count = False

    def __init__(self, suspects: set[tuple[int, int, int]]) -> None:
        super().__init__()
        self._suspects = suspects
        self.failed = False

    def rewriter(self, number: int) -> Callable[[ast.Module], ast.Module]:
        return _Tried(number).visit

    def note(self, *key: int) -> None:
        self.failed = self.failed or key in self._suspects

    def reached(self) -> None:
        self._judge.counted()


class _Tried(ast.NodeTransformer):
    def __init__(self, number: int) -> None:
        self._number = number

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        key = f"{self._number}, {node.lineno}, {node.col_offset}"
        tried = ast.parse(
            f"try:\n    {JUDGE}.examination.reached()\nexcept Exception:\n    {JUDGE}.examination.note({key})"
        ).body[0]
        assert isinstance(tried, ast.Try)
        tried.body.append(node)
        return ast.copy_location(tried, node)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return self.visit_Assert(node) if is_assertion(node.value) else node  # type: ignore[arg-type]


def _asked(node: Any) -> ast.expr:
    """What a loop goes through, or what it or a branch depends on."""
    return getattr(node, {ast.For: "iter", ast.AsyncFor: "iter", ast.Match: "subject"}.get(type(node), "test"))


def _looked_up(node: ast.expr) -> ast.expr:
    """`xs` of `xs[n]`: what is found there was there, whoever says where to look."""
    plain = isinstance(node, ast.Subscript) and not any(isinstance(each, ast.Call) for each in ast.walk(node.slice))
    return _looked_up(node.value) if plain else node  # type: ignore[attr-defined]


def _value(frame: FrameType, name: str) -> Any:
    return frame.f_locals.get(name, frame.f_globals.get(name))


def _stored(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _written(node: ast.stmt) -> set[str]:
    """Names whose values a statement may set or change. A call may change all that it is given; what the answer changes in
    its arguments is known otherwise."""
    names = _stored(node)
    for each in ast.walk(node):
        stored = isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load)
        if (
            stored
            or isinstance(each, ast.Expr)
            or (isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute))
        ):
            names |= names_of(getattr(each, "func", each))
    return names


def _is_bare(node: ast.stmt) -> bool:
    """Whether an assertion looks at a value itself: `assert xs`, `assert not xs`."""
    test = node.test if isinstance(node, ast.Assert) else None
    inner = test.operand if isinstance(test, ast.UnaryOp) else test
    return isinstance(inner, ast.Name)


def _reached(value: Any, wanted: Collection[int] = ()) -> set[int]:
    """The ids of all that a value leads to, itself among them, up to one that is wanted; with `_TOO_MANY` where that is not
    all."""
    seen, new = set[int](), [value]
    while new:
        each = new.pop()
        if len(seen) > _MANY:
            return seen | {_TOO_MANY}
        if id(each) not in seen and not isinstance(each, _ELSEWHERE) and _of_the_test(each):
            seen.add(id(each))
            if id(each) in wanted:
                return seen
            new += [part for part in gc.get_referents(each) if type(part) not in ATOMS]
    return seen


def _of_the_test(value: Any) -> bool:
    """Whether what a class refers to belongs to the test: not where it is a library's."""
    return not isinstance(value, type) or value.__module__ in ("tests", "setup")
