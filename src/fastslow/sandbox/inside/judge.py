"""The process that runs the tests. It holds them and what they expect; the answer runs in another process.

Wherever a test uses a name that the answer defines, it gets a stand-in: calling that has the other process do the work and
send back what came of it, as data. So nothing the answer does to Python, to its own process or to its connection can make a
wrong value equal to the expected one, end the tests early with a good result, or read what is expected.

Nothing that the answer names is looked up here: even one of Python's own functions stays in the other process. What a test
compares an answer with is computed from the arguments as they were before the answer changed them.
"""

from __future__ import annotations

import builtins
import copy
import importlib
import operator
import re
from collections.abc import Callable
from typing import Any

from . import wire
from .pieces import Piece, names_of

_LONGEST = 300
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""The one part of what Python shows that is another one every time."""


class StandIn:
    """Something of the answer's that is not plain data: a function, a class, an object, a generator.

    It can be called and looked into. It is compared and computed with only where the other side is a stand-in too: what the
    answer's own __eq__ says about the expected value is no evidence.
    """

    def __init__(self, judge: Judge, number: int, known: str | None = None) -> None:
        object.__setattr__(self, "_judge", judge)
        object.__setattr__(self, "_number", number)
        # The name of the function or type of Python's own that it is. It only says what it equals: it is called over there.
        object.__setattr__(self, "_known", known)

    def _ask(self, do: str, *args: Any, **kwargs: Any) -> Any:
        judge: Judge = object.__getattribute__(self, "_judge")
        return judge.ask(do, self, *args, **kwargs)

    def __bool__(self) -> bool:
        return self._ask("bool") is True

    def __hash__(self) -> int:
        return id(self)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, StandIn) and self._ask("isinstance", value) is True


def _asking(do: str, kind: Callable[[Any], Any] = lambda reply: reply) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: kind(self._ask(do, *args, **kwargs))


def _between_stand_ins(do: str) -> Callable[[Any, Any], Any]:
    def compute(self: StandIn, other: Any) -> Any:
        if do in ("eq", "ne") and is_known(self, other):
            return do == "eq"
        return self._ask(do, other) if isinstance(other, StandIn) else NotImplemented

    return compute


for _name in ("call", "getattr", "setattr", "getitem", "setitem", "iter", "next"):
    setattr(StandIn, f"__{_name}__", _asking(_name))
for _name, _kind in {"len": int, "str": str, "repr": str}.items():
    setattr(StandIn, f"__{_name}__", _asking(_name, _kind))
for _name in ("eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "matmul", "and", "or", "xor"):
    setattr(StandIn, f"__{_name}__", _between_stand_ins(f"{_name}_" if _name in ("and", "or") else _name))


def is_known(left: Any, right: Any) -> bool:
    """Whether one side is a function or type of Python's own, and the other what the answer says is the same."""
    for one, other in ((left, right), (right, left)):
        if type(one) is StandIn and type(other) is not StandIn:
            name = object.__getattribute__(one, "_known")
            return name is not None and vars(builtins).get(name, one) is other
    return False


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": lambda left, right: left is right or is_known(left, right),
    "IsNot": lambda left, right: left is not right and not is_known(left, right),
    "In": lambda item, whole: item in whole,
    "NotIn": lambda item, whole: item not in whole,
}
_ENDS = ("StopIteration", "StopAsyncIteration")
_ALIASES = {"np": "numpy", "pd": "pandas"}
"""What tests call by another name than its own. What the answer calls so does not count."""


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
        self._exceptions: dict[tuple[Any, ...], type[Exception]] = {}
        self._calls = self._checks = 0
        self._over = False
        self._changed: list[tuple[Any, Any]] = []
        """Arguments that the answer has changed in place, each with a copy from before."""
        self._later: list[tuple[Any, Any]] | None = None
        """Changes of arguments that wait for the end of an assertion."""

    def judge(self, tests: list[dict[str, Any]], setup: str, entry: str | None) -> dict[str, Any]:
        """What is to be said about the answer, under the key `verdict` in one word. `setup` runs before the tests, here."""
        pieces = [Piece(test) for test in tests]
        try:
            names = self._reply()["value"]
            if not isinstance(names, list):
                raise self._ended()
            space = self._space({name for name in names if isinstance(name, str)}, pieces, setup, entry)
            suspects = {name for name, value in space.items() if isinstance(value, StandIn)}
            for number, piece in enumerate(pieces):
                self._at(number, piece.text)
                self._run(piece, space, suspects)
            if not self._checks and any(piece.only_in_loops for piece in pieces):
                raise AssertionError  # loops over what the answer returned have made no comparison
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

    def _space(self, names: set[str], pieces: list[Piece], setup: str, entry: str | None) -> dict[str, Any]:
        """The names that tests see: stand-ins for the answer's. An answer may not replace what the tests compare with, so
        one that goes by a built-in name is seen only where it is what the tests are about."""
        space: dict[str, Any] = {"__name__": "tests", "__check__": self._check, "__true__": self._true}
        used = names_of(setup).union(*(piece.names for piece in pieces), [entry] if entry else []) & names
        own = {name for name in used if name not in vars(builtins)}
        for name in (own | ({entry} if entry in used else set())) or used:
            kind, value = self.ask("name", name)
            if kind == "module":  # the judge uses its own copy, of the module that everybody calls so
                value = importlib.import_module(_ALIASES.get(name, name))
            space[name] = value
        exec(setup, space)
        if entry is not None and entry not in space:
            raise NameError(f"name '{entry}' is not defined")
        return space

    def _run(self, piece: Piece, space: dict[str, Any], suspects: set[str]) -> None:
        self._changed.clear()
        if piece.call is None:
            before = self._checks
            exec(piece.compiled(suspects), space)
            if piece.only_in_module_loops and self._checks == before:
                raise AssertionError
            return
        self._checks += 1
        value = eval(piece.call, space)
        if not _same(value, piece.expected):
            raise _Failed(piece.text, value, piece.expected, True)

    def _check(self, operation: str, text: str, texts: Any, from_answer: Any, left: Any, right: Any) -> None:
        """Stands in the place of an assertion that compares two values, and remembers them when it fails. `from_answer` says
        which sides use what the answer gave; the other side is computed from unchanged arguments."""
        self._at(self._place["test"], text)
        before, self._checks = self._calls, self._checks + 1
        first = self._as_given(left) if from_answer == (False, True) else left()
        asked = self._calls > before
        second = self._as_given(right) if from_answer == (True, False) else right()
        if not _OPERATORS[operation](first, second):
            got, expected, call = (first, second, texts[0]) if asked else (second, first, texts[1])
            raise _Failed(call, got, expected, operation == "Eq")

    def _true(self, text: str, condition: Callable[[], Any]) -> None:
        """Stands in the place of any other assertion. Arguments change when it is over."""
        self._at(self._place["test"], text)
        self._checks += 1
        outer, self._later = self._later, []
        try:
            holds = bool(condition())
        finally:
            waiting, self._later = self._later, outer
            for value, changed in waiting:
                self._apply(value, changed)
        if not holds:
            raise AssertionError

    def _as_given(self, side: Callable[[], Any]) -> Any:
        now = [(value, copy.copy(value)) for value, _ in self._changed]
        for value, before in self._changed:
            _change(value, before)
        try:
            return _copied(side())
        finally:
            for value, current in now:
                _change(value, current)

    def _apply(self, value: Any, changed: Any) -> None:
        if not any(value is known for known, _ in self._changed):
            self._changed.append((value, copy.copy(value)))
        _change(value, changed)

    def ask(self, do: str, *args: Any, **kwargs: Any) -> Any:
        """Have the other process do something with what is plain data or a stand-in."""
        self._calls += 1
        packed = [self._pack(value) for value in args]
        named = {name: self._pack(value) for name, value in kwargs.items()}
        try:
            wire.send(self._requests, {"do": do, "args": packed, "kwargs": named})
        except OSError:
            raise self._ended() from None
        reply = self._reply(do)
        while "call" in reply:
            wire.send(self._requests, self._lend(reply))
            reply = self._reply(do)
        try:
            for value, sent, changed in zip(args, packed, reply["changed"], strict=True):
                if isinstance(value, wire.CHANGEABLE) and sent != changed:
                    if self._later is None:
                        self._apply(value, self._unpack(changed))
                    else:
                        self._later.append((value, self._unpack(changed)))
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

    def _reply(self, do: str = "") -> dict[str, Any]:
        try:
            reply = wire.receive(self._replies)
        except (OSError, EOFError, ValueError, RecursionError):
            raise self._ended() from None
        if not isinstance(reply, dict):
            raise self._ended()
        if "raised" in reply:
            raise self._exception(reply, ends_iteration=do == "next")
        return reply

    def _exception(self, reply: dict[str, Any], *, ends_iteration: bool) -> Exception:
        """The answer's exception as one of the judge's own, of the same name and the nearest kind there is here. Only an
        iterator may end an iteration: raised elsewhere, it would end a test's `map` or `zip` early."""
        try:
            ancestry = tuple(map(str, reply["raised"]))
            line = reply["line"] if isinstance(reply["line"], int) else None
            words = f"{ancestry[0]}: {reply['message']}"[:_LONGEST].rstrip(": ")
            about = {"error": words, "line": line, "code": str(reply["code"])}
            error = self._kind(ancestry, ends_iteration)(*self._unpack(reply["args"]))
        except Exception:  # data that no honest program has sent; it becomes the verdict "ended"
            raise self._ended() from None
        error.about_answer = about  # type: ignore[attr-defined]
        return error

    def _kind(self, ancestry: tuple[str, ...], ends_iteration: bool = False) -> type[Exception]:
        key = (ends_iteration, *ancestry)
        if key not in self._exceptions:
            names = [name for name in ancestry if ends_iteration or name not in _ENDS]
            kinds = [kind for name in names if isinstance(kind := vars(builtins).get(name), type)]
            # The first of Python's own errors among a class and its parents. SystemExit is none: it must not end the judge.
            base = next((kind for kind in kinds if issubclass(kind, Exception)), Exception)
            self._exceptions[key] = base if base.__name__ == ancestry[0] else type(ancestry[0], (base,), {})
        return self._exceptions[key]

    def _pack(self, value: Any) -> Any:
        return wire.pack(value, self._keep)

    def _keep(self, value: Any) -> Any:
        if isinstance(value, StandIn):
            return {"kept": [object.__getattribute__(value, "_number"), None]}
        if (builtin := wire.builtin_name(value)) is not None:
            return {"builtin": builtin}
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
        number, known = stand_in["kept"]  # whatever else the answer sends raises, and becomes the verdict "ended"
        return StandIn(self, int(number), known if isinstance(known, str) else None)


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


def _same(value: Any, expected: Any) -> bool:
    """Equal, where a tuple will do for an expected list, because JSON has no other way to write one."""
    if isinstance(expected, list) and type(value) in (list, tuple):
        return len(value) == len(expected) and all(map(_same, value, expected))
    if isinstance(expected, dict) and isinstance(value, dict):
        return value.keys() == expected.keys() and all(_same(value[key], expected[key]) for key in expected)
    return bool(value == expected)


def _copied(value: Any) -> Any:
    """A copy that later changes of what it is made of do not reach."""
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(_copied, value))
    if type(value) is dict:
        return {key: _copied(inner) for key, inner in value.items()}
    return copy.copy(value) if isinstance(value, wire.CHANGEABLE) else value


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
