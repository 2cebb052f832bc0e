"""The process that runs the tests. It holds them and what they expect; the answer runs in another process.

Wherever a test uses a name that the answer defines, it gets a stand-in: calling that has the other process do the work and
send back what came of it, as data. So nothing the answer does to Python, to its own process or to its connection can make a
wrong value equal to the expected one, end the tests early with a good result, or read what is expected.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import operator
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import wire

TESTS = "tests.py"
_LONGEST = 300
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""The one part of what Python shows that is another one every time."""
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda item, whole: item in whole,
    "NotIn": lambda item, whole: item not in whole,
}


class _Ended(BaseException):
    """The other process is gone or talks nonsense."""


class _Failed(AssertionError):
    """A comparison is false: its side that comes from the answer, what that gave, what the other gave, and whether they
    were to be equal."""


class Judge:
    """Runs tests, each a piece of Python or a call with the value it must return."""

    def __init__(self, requests: int, replies: int, tell: Callable[[dict[str, Any]], None]) -> None:
        self._requests, self._replies = requests, replies
        self._tell = tell
        self._place: dict[str, Any] = {}
        self._lent: list[Callable[..., Any]] = []
        self._exceptions: dict[tuple[str, ...], type[Exception]] = {}
        self._calls = 0
        self._over = False

    def judge(self, tests: list[dict[str, Any]], setup: str, entry: str | None) -> dict[str, Any]:
        """What is to be said about the answer, under the key `verdict` in one word. `setup` runs before the tests, here."""
        pieces = [_Piece(test) for test in tests]
        try:
            space = self._space(self._loaded(), pieces, setup, entry)
            for number, piece in enumerate(pieces):
                self._at(number, piece.text)
                self._run(piece, space)
            return {"verdict": "ended" if self._over else "passed", **self._place}
        except BaseException as error:
            if self._over:
                return {"verdict": "ended", **self._place}
            if self._place:
                self._place["statement"] = pieces[self._place["test"]].statement(error)[:_LONGEST]
            return {**self._place, **_verdict(error)}

    def _ended(self) -> BaseException:
        self._over = True  # a test may swallow the exception, but not this
        return _Ended()

    def _at(self, number: int, statement: str) -> None:
        """Say where the tests are, in case that is where they stay."""
        if self._place != (place := {"test": number, "statement": statement[:_LONGEST]}):
            self._place = place
            self._tell({"at": place})

    def _loaded(self) -> list[str]:
        names = self._reply()["value"]
        if not isinstance(names, list):
            raise self._ended()
        return [name for name in names if isinstance(name, str)]

    def _space(self, names: list[str], pieces: list[_Piece], setup: str, entry: str | None) -> dict[str, Any]:
        """The names that tests see: stand-ins for the answer's. An answer may not replace what the tests compare with, so
        one that goes by a built-in name is seen only where it is what the tests are about."""
        space: dict[str, Any] = {"__name__": "tests", "__check__": self._check}
        used = _names(setup).union(*(piece.names for piece in pieces), [entry] if entry else []) & set(names)
        own = {name for name in used if name not in vars(builtins)}
        for name in (own | ({entry} if entry in used else set())) or used:
            kind, value = self.ask("name", name)
            if kind == "module":  # the judge uses its own copy
                value = importlib.import_module(name if name in sys.stdlib_module_names else value)
            space[name] = value
        exec(setup, space)
        if entry is not None and entry not in space:
            raise NameError(f"name '{entry}' is not defined")
        return space

    def _run(self, piece: _Piece, space: dict[str, Any]) -> None:
        if piece.call is None:
            exec(piece.code, space)
            return
        value = eval(piece.call, space)
        if not _same(value, piece.expected):
            raise _Failed(piece.text, value, piece.expected, True)

    def _check(self, operation: str, text: str, left_text: str, right_text: str, left: Any, right: Any) -> None:
        """Stands in the place of an assertion that compares two values, and remembers them when it fails."""
        self._at(self._place["test"], text)
        before = self._calls
        first = left()
        from_answer = self._calls > before
        second = right()
        if not _OPERATORS[operation](first, second):
            got, expected, call = (first, second, left_text) if from_answer else (second, first, right_text)
            raise _Failed(call, got, expected, operation == "Eq")

    def ask(self, do: str, *args: Any, **kwargs: Any) -> Any:
        """Have the other process do something with what is plain data or a stand-in."""
        self._calls += 1
        packed = [self._pack(value) for value in args]
        named = {name: self._pack(value) for name, value in kwargs.items()}
        try:
            wire.send(self._requests, {"do": do, "args": packed, "kwargs": named})
        except OSError:
            raise self._ended() from None
        reply = self._reply()
        while "call" in reply:
            wire.send(self._requests, self._lend(reply))
            reply = self._reply()
        try:
            for value, changed in zip(args, reply["changed"], strict=True):
                if isinstance(value, wire.CHANGEABLE):
                    _change(value, self._unpack(changed))
            return self._unpack(reply["value"])
        except Exception:  # data that no honest pack() has written
            raise self._ended() from None

    def _lend(self, request: dict[str, Any]) -> dict[str, Any]:
        """Call a function of the tests for the answer: only one that it was given, and only with data."""
        try:
            function = self._lent[int(request["call"])]
            args = [self._unpack(value) for value in request["args"]]
            kwargs = {str(name): self._unpack(value) for name, value in request["kwargs"].items()}
        except Exception:  # data that no honest program has sent; it becomes the verdict "ended"
            raise self._ended() from None
        try:
            return {"value": self._pack(function(*args, **kwargs))}
        except Exception as error:
            return {"raised": type(error).__name__, "message": str(error)}

    def _reply(self) -> dict[str, Any]:
        try:
            reply = wire.receive(self._replies)
        except (OSError, EOFError, ValueError, RecursionError):
            raise self._ended() from None
        if not isinstance(reply, dict):
            raise self._ended()
        if "raised" in reply:
            raise self._exception(reply)
        return reply

    def _exception(self, reply: dict[str, Any]) -> Exception:
        """The answer's exception as one of the judge's own, of the same name and the nearest kind there is here."""
        try:
            ancestry = tuple(map(str, reply["raised"]))
            line = reply["line"] if isinstance(reply["line"], int) else None
            words = f"{ancestry[0]}: {reply['message']}"[:_LONGEST].rstrip(": ")
            about = {"error": words, "line": line, "code": str(reply["code"])}
            error = self._kind(ancestry)(*self._unpack(reply["args"]))
        except Exception:  # data that no honest program has sent; it becomes the verdict "ended"
            raise self._ended() from None
        error.about_answer = about  # type: ignore[attr-defined]
        return error

    def _kind(self, ancestry: tuple[str, ...]) -> type[Exception]:
        if ancestry not in self._exceptions:
            base = _nearest_error(ancestry)
            self._exceptions[ancestry] = base if base.__name__ == ancestry[0] else type(ancestry[0], (base,), {})
        return self._exceptions[ancestry]

    def _pack(self, value: Any) -> Any:
        return wire.pack(value, self._keep)

    def _keep(self, value: Any) -> Any:
        if isinstance(value, StandIn):
            return {"kept": object.__getattribute__(value, "_number")}
        if builtin := wire.pack_builtin(value):
            return builtin
        if not callable(value):
            raise TypeError(
                f"a test gives the answer an object of type {type(value).__name__}, which is not plain data"
            )
        self._lent.append(value)
        return {"judge": len(self._lent) - 1}

    def _unpack(self, packed: Any) -> Any:
        return wire.unpack(packed, self._find)

    def _find(self, stand_in: dict[str, Any]) -> Any:
        if "exception" in stand_in:
            return self._kind(tuple(map(str, stand_in["exception"][1])))
        return StandIn(self, int(stand_in["kept"]))


class StandIn:
    """Something of the answer's that is not plain data: a function, a class, an object, a generator.

    It can be called and looked into. It is compared and computed with only where the other side is a stand-in too: what the
    answer's own __eq__ says about the expected value is no evidence.
    """

    def __init__(self, judge: Judge, number: int) -> None:
        object.__setattr__(self, "_judge", judge)
        object.__setattr__(self, "_number", number)

    def _ask(self, do: str, *args: Any, **kwargs: Any) -> Any:
        judge: Judge = object.__getattribute__(self, "_judge")
        return judge.ask(do, self, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._ask("call", *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._ask("getattr", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._ask("setattr", name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("getitem", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._ask("setitem", key, value)

    def __iter__(self) -> Any:
        return self._ask("iter")

    def __next__(self) -> Any:
        return self._ask("next")

    def __len__(self) -> int:
        return int(self._ask("len"))

    def __str__(self) -> str:
        return str(self._ask("str"))

    def __repr__(self) -> str:
        return str(self._ask("repr"))

    def __bool__(self) -> bool:
        return self._ask("bool") is True

    def __hash__(self) -> int:
        return id(self)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, StandIn) and self._ask("isinstance", value) is True


def _between_stand_ins(do: str) -> Callable[[Any, Any], Any]:
    def compute(self: StandIn, other: Any) -> Any:
        return self._ask(do, other) if isinstance(other, StandIn) else NotImplemented

    return compute


for _name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "matmul", "and", "or", "xor"):
    setattr(StandIn, f"__{_name}__", _between_stand_ins(f"{_name}_" if _name in ("and", "or") else _name))


class _Piece:
    """One test, read and compiled."""

    def __init__(self, test: dict[str, Any]) -> None:
        self.call = compile(test["call"], TESTS, "eval") if "call" in test else None
        self.text: str = test["call"] if "call" in test else test["code"].strip()
        self.expected = wire.unpack(test.get("expected"), lambda packed: packed)
        self._tree = ast.parse(self.text)
        self.names = _names(self.text)
        checked = ast.fix_missing_locations(_Assertions().visit(ast.parse(self.text)))
        self.code = compile(checked, TESTS, "exec")

    def statement(self, error: BaseException) -> str:
        """The statement of the test that an error came through last."""
        line, part = 0, error.__traceback__
        while part is not None:
            if part.tb_frame.f_code.co_filename == TESTS:
                line = part.tb_lineno
            part = part.tb_next
        around = [node for node in ast.walk(self._tree) if isinstance(node, ast.stmt) and _covers(node, line)]
        return ast.unparse(around[-1]) if around else self.text


class _Assertions(ast.NodeTransformer):
    """Turns `assert left == right` into a call of `__check__`, which keeps the two values."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        compare = node.test
        if not isinstance(compare, ast.Compare) or len(compare.ops) != 1:
            return node
        if any(isinstance(each, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await) for each in ast.walk(compare)):
            return node  # these would mean something else inside a function of their own
        sides = [compare.left, compare.comparators[0]]
        arguments: list[ast.expr] = [
            ast.Constant(type(compare.ops[0]).__name__),
            ast.Constant(ast.unparse(node)),
            *(ast.Constant(ast.unparse(side)) for side in sides),
            *(ast.Lambda(ast.arguments([], [], None, [], [], None, []), side) for side in sides),
        ]
        return ast.copy_location(ast.Expr(ast.Call(ast.Name("__check__", ast.Load()), arguments, [])), node)


def _names(code: str) -> set[str]:
    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    return {name for name in names if not name.startswith("__")}


def _covers(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _verdict(error: BaseException) -> dict[str, Any]:
    about = vars(error).get("about_answer")
    if about is not None:
        return {"verdict": "raised", **about}
    if isinstance(error, _Failed):
        call, got, expected, equality = error.args
        kinds = [type(got).__name__, type(expected).__name__] if equality else []
        return {"verdict": "failed", "call": call, "got": _show(got), "expected": _show(expected), "kinds": kinds}
    if isinstance(error, AssertionError):
        return {"verdict": "failed"}
    return {"verdict": "broken", "error": f"{type(error).__name__}: {error}"[:_LONGEST].replace("StandIn", "object")}


def _nearest_error(ancestry: Sequence[str]) -> type[Exception]:
    """The first of Python's own errors among a class and its parents. SystemExit is none: it must not end the judge."""
    for name in ancestry:
        kind = vars(builtins).get(name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            return kind
    return Exception


def _same(value: Any, expected: Any) -> bool:
    """Equal, where a tuple will do for an expected list, because JSON has no other way to write one."""
    if isinstance(expected, list) and type(value) in (list, tuple):
        return len(value) == len(expected) and all(map(_same, value, expected))
    if isinstance(expected, dict) and isinstance(value, dict):
        return value.keys() == expected.keys() and all(_same(value[key], expected[key]) for key in expected)
    return bool(value == expected)


def _change(value: Any, changed: Any) -> None:
    """What the answer did to an argument in place is done here as well."""
    if isinstance(value, list | bytearray):
        value[:] = changed
    else:
        value.clear()
        (value.extend if hasattr(value, "extend") else value.update)(changed)


def _show(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # a number of thousands of digits, or a __repr__ of the answer's own
        text = f"<{type(value).__name__}: {type(error).__name__}>"
    text = _ADDRESS.sub("", text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
