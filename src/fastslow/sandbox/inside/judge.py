"""The process that runs the tests. It holds them and what they expect; the answer runs in another process.

Tests run as they are written: what they expect is computed here, step by step, from the test alone. The names of the answer
are stand-ins in them: calling one has the other process do the work and send back what came of it, as data that is made anew
here. So nothing the answer does to Python, to its own process or to its connection can make a wrong value equal to the
expected one, end the tests early with a good result, or read what is expected.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import importlib
import inspect
import json
import os
import random
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from . import cases, evidence, foreign, handles, lent, wire
from .around import ANSWER, Answer, Watched
from .doubt import Given, Unsure
from .errors import Raised, Tree, error_maker, exception_class
from .handles import Handle, Mirror, Standing
from .peer import OPERATIONS, Gone, Peer, Pipes, operate
from .pieces import JUDGE, TESTS, Assertions, Piece, Uses, names_of, quoted_names
from .program import SAFE, class_names
from .verdict import LONGEST, AboutAnswer, Failed, equal, verdict_of

_ENDS = (StopIteration, StopAsyncIteration)
_ALIASES = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot"}
"""What tests call by another name than its own. What the answer calls so does not count."""
_TESTING = ("builtins", "unittest", "pytest", "_pytest", "hypothesis", "inside", "tests", "__main__", *ANSWER)
"""Modules whose exceptions say how a test has ended."""
_INNARDS = ("_", "gi_", "cr_", "ag_", "f_", "tb_", "co_", "assert")
"""How names begin that the answer may not ask for of the tests' objects: they lead to the tests."""


def judge(requests: int, replies: int, tell: Callable[[dict[str, Any]], None], given: dict[str, Any]) -> dict[str, Any]:
    """What is to be said about the answer, under the key `verdict` in one word."""
    recorded = evidence.Recorder(Pipes(replies, requests))
    state, entropy = random.getstate(), os.urandom(16).hex()
    first = Judge(recorded, tell, entropy)
    text = "\n".join(Piece(test).text for test in given["tests"])
    foreign.watch(f"{given['setup']}\n{text}", TESTS, os.getcwd(), first.leads_back, first.unsure)
    verdict = first.judge(**given)
    if verdict["verdict"] == "passed" and first.changes:
        # The answer has changed arguments. What the test expects may not rest on them.
        def play(run: evidence.Examination) -> dict[str, Any]:
            random.setstate(state)
            return Judge(recorded.again(), lambda _: None, entropy, run).judge(**given)

        why = evidence.examine(play)
        if why:
            return {**verdict, "verdict": "unsure", "error": why}
    return verdict


class Judge(Peer):
    """Runs tests, each a piece of Python or a call with the value it must return."""

    def __init__(
        self,
        channel: Any,
        tell: Callable[[dict[str, Any]], None],
        entropy: str,
        run: evidence.Examination | None = None,
    ) -> None:
        super().__init__(channel, 0)
        self._tell, self._entropy, self.examination = tell, entropy, run
        self._place: dict[str, Any] = {}
        self._calls = self._checks = self._calls_before = self._calls_between = 0
        self._over = False
        self._words: list[tuple[Any, int]] = []
        """What objects in the place of data gave, and after how many calls."""
        self.changes: dict[int, tuple[Any, Any]] = {}
        """By its id, what the answer has changed in place, with a copy from before."""
        self.late: list[int] = []
        """The ids of those that it was not given just then, in order."""
        sys.modules["tests"] = types.ModuleType("tests")  # where classes of the tests are looked up
        self._space: dict[str, Any] = vars(sys.modules["tests"])
        self._shared: set[str] = set()
        self._classes: dict[int, type] = {}
        self._by_number: dict[int, Any] = {}
        self._errors: dict[str, type[Exception]] = {}
        self.said: dict[int, str] = {}
        """By their ids, how exceptions of the answer's own classes show themselves."""
        self._theirs: dict[int, tuple[Any, int]] = {}

    def judge(self, tests: list[dict[str, Any]], setup: str, entry: str | None) -> dict[str, Any]:
        Unsure.why = ""
        self._pieces = pieces = [Piece(test) for test in tests]
        code = "\n".join([setup, *(piece.text for piece in pieces)])
        self._uses = Uses(ast.parse("\n".join(piece.text for piece in pieces)))
        self._around = Watched(code, self._entropy)
        self._shared = class_names(setup)
        if "unittest" in code:
            cases.count_assertions(self.counted, self.truth, self.same)
        if self.examination:
            self.examination.start(self)
        try:
            self._fill_space(pieces, setup, entry)
            for number, piece in enumerate(pieces):
                self._put(number, piece.text)
                self._run(piece, number)
            if Unsure.why:
                raise Unsure(Unsure.why)
            return {"verdict": "ended" if self._over else "passed", **self._place}
        except BaseException as error:
            if self._over:
                return {"verdict": "ended", **self._place}
            if self._place:
                self._place["statement"] = pieces[self._place["test"]].statement(error)[:LONGEST]
            return {**self._place, **verdict_of(error)}
        finally:
            self._around.close()

    def unsure(self, why: str) -> Unsure:
        return Unsure(why)

    def gone(self) -> BaseException:
        self._over = True
        return Gone()

    def _put(self, number: int, statement: str) -> None:
        """Say where the tests are, in case that is where they stay."""
        if self._place != (place := {"test": number, "statement": statement[:LONGEST]}):
            self._place = place
            self._tell({"at": place})

    def _fill_space(self, pieces: list[Piece], setup: str, entry: str | None) -> None:
        """The names that tests see: stand-ins for the answer's. An answer may not replace what the tests compare with, so
        one that goes by a built-in name is seen only where it is what the tests are about."""
        names = self._result("", self._exchange(None), [], [], ())
        if not isinstance(names, list):
            raise self.gone()
        self._space[JUDGE] = self
        known = set(map(str, names))
        for home in ANSWER:
            sys.modules[home] = Answer(home, self, set(known))
        used = names_of(Piece({"code": setup}).tree).union(*(piece.names for piece in pieces), [entry] if entry else [])
        if used & {"globals", "eval", "exec"}:
            used = used.union(*(quoted_names(piece.tree) for piece in pieces))
        exec(compile(setup, "setup.py", "exec", dont_inherit=True), self._space)
        known -= self._space.keys()
        own = {name for name in used & known if name not in vars(builtins)}
        for name in sorted((own | ({entry} if entry in known else set())) or used & known):
            with contextlib.suppress(AttributeError):
                self._space[name] = self.value(name)
        if entry is not None and entry not in self._space:
            raise NameError(f"name '{entry}' is not defined")

    def value(self, name: str) -> Any:
        """What the answer calls by a name. The judge uses its own copy of a module, the one that everybody calls so, and of
        what stands under that name in Python's library."""
        kind, value = self.ask("name", name)
        if kind == "module":
            with contextlib.suppress(
                ImportError
            ):  # a name of the answer's own choice, which the test may give again itself
                return importlib.import_module(_ALIASES.get(name, name))
            raise AttributeError(f"the code does not define '{name}'")
        if kind == "library" and value in sys.stdlib_module_names - {"builtins"}:
            return getattr(importlib.import_module(value), name)
        if isinstance(value, Mirror | Raised) and name.lstrip("_")[:1].isupper() and not self._uses.as_function(name):
            type.__setattr__(value, "_named", True)
        return value

    def _run(self, piece: Piece, number: int) -> None:
        before = self._checks
        if piece.call is not None:
            self._checks += 1
            value = eval(piece.call, self._space)
            if not equal(value, piece.expected):
                raise Failed(piece.text, value, piece.expected, True)
            return
        known = set(self._space)
        rewrite = Assertions().visit if self.examination is None else self.examination.rewriter(number)
        exec(piece.compiled(rewrite), self._space)
        new = [self._space[name] for name in self._space if name not in known]
        unittest = sys.modules.get("unittest")
        for case in [
            each for each in new if unittest and isinstance(each, type) and issubclass(each, unittest.TestCase)
        ]:
            cases.run_case(case)
        if self._checks == before:  # tests that wait for pytest to call them
            for each in new:
                if inspect.isfunction(each) and each.__name__.startswith("test"):
                    cases.awaited(each()) if inspect.iscoroutinefunction(each) else each()
        if piece.checks and self._checks == before:
            raise AssertionError  # loops over what the answer returned have made no comparison

    def counted(self) -> None:
        """An assertion was reached."""
        self._checks += 1

    # What tests call, in the place of their assertions.

    def at(self, text: str) -> None:
        self._put(self._place["test"], text)
        self._checks += 1
        self._calls_before = self._calls

    def half(self) -> None:
        self._calls_between = self._calls

    def same(self, left: Any, right: Any) -> Any:
        """The left one where both stand for one object, else the right one."""
        if isinstance(left, Given) or isinstance(right, Given):
            return left if left == right else right
        if (
            type(left) is type(right)
            and type(left) in wire.FIXED
            and (left == right or repr(left) == repr(right) == "nan")
        ):
            return left  # what cannot be changed goes over as a copy
        both = isinstance(left, Handle) and isinstance(right, Handle)
        return left if both and self.number_of(left) == self.number_of(right) else right

    def truth(self, value: Any) -> bool:
        """Whether a value is true; what an object in the place of data gave decides nothing."""
        if any(value is word and (calls == self._calls or not _is_everywhere(value)) for word, calls in self._words):
            raise self.unsure("it rests on the word of an object in the place of data")
        return bool(value)

    def either(self, kind: Any) -> tuple[Any, Any]:
        """What ends an iteration, and what says so elsewhere."""
        return kind, self._error([kind.__name__])

    def word(self, value: Any) -> None:
        """An object in the place of data gave this."""
        self._words.append((value, self._calls))

    def failure(self, left: Any, right: Any, texts: list[str]) -> AssertionError:
        if self._calls_between > self._calls_before or isinstance(left, Handle):
            return Failed(texts[0], left, right, texts[2] == "Eq")
        return Failed(texts[1], right, left, texts[2] == "Eq")

    def leads_back(self, name: str) -> bool:
        """Whether a name of the tests stands for something of the answer's."""
        return isinstance(self._space.get(name), Handle | Mirror)

    # The answer's side.

    def ask(self, do: str, *args: Any, **kwargs: Any) -> Any:
        self._calls += 1
        value = super().ask(do, *args, **kwargs)
        if self._around.raised:
            raise self._around.raised.pop()
        return value

    def around(self) -> dict[str, Any]:
        told = self._around.told(self._whole)
        return {"around": told} if told else {}

    def _whole(self, value: Any) -> Any:
        packer = self._packer()
        return [packer.pack(value), packer.table()]

    def settle(self, reply: dict[str, Any]) -> None:
        self._around.settle(reply)

    def drop(self) -> list[int]:
        """Nothing the second time: the answer has said then what it has said."""
        return super().drop() if self.examination is None else []

    def fixes(self, do: str, args: Sequence[Any]) -> bool:
        """What a function returns is a result, which the answer must not change when it knows more."""
        return do == "call" and type(args[0]).__name__ != "method"

    def changed(self, unpacker: wire.Unpacker, value: Any, entry: Any, late: bool = False) -> None:
        self.late += [id(value)] if late else []
        self.changes.setdefault(id(value), (value, copy.copy(value)))
        if self.examination is None or self.examination.changes_count:
            unpacker.fill(value, entry)

    def raised(self, do: str, error: BaseException, reply: dict[str, Any]) -> BaseException:
        """The answer's exception. Only an iterator may end an iteration: raised elsewhere, it would end a test's `map` or
        `zip` early."""
        self._checks += do not in ("getattr", "setattr")  # a test that expects an error has got one
        if isinstance(error, _ENDS) and do not in ("next", "anext"):
            error = self._error([type(error).__name__])(*error.args)
            error.value = error.args[0] if error.args else None  # type: ignore[attr-defined]
        words = f"{reply.get('kind')}: {reply.get('message')}"[:LONGEST].rstrip(": ")
        line = reply["line"] if isinstance(reply.get("line"), int) else None
        error.about_answer = AboutAnswer(error=words, line=line, code=str(reply.get("code")))  # type: ignore[attr-defined]
        return error

    def _error(self, tree: Tree) -> type[Exception]:
        key = json.dumps(tree)
        if key not in self._errors:
            self._errors[key] = exception_class(tree, _known_error, self._error, error_maker(self))
        return self._errors[key]

    def trait(self, owner: Any, name: str, value: Any) -> Any:
        """An attribute of data may hide no method, and counts no more than one of an object where it answers for data."""
        hidden = not isinstance(owner, type | tuple) and callable(getattr(type(owner), name, None))
        if hidden or name in handles.TRUTHS:
            raise self.unsure(f"the attribute `{name}` of the result takes the place of one that data has")
        return handles.unproven(value)

    def error(self, error: BaseException, number: int | None = None, said: Any = None) -> BaseException:
        """One that the answer goes on having is the same one each time."""
        if number is None:
            return error
        known = self._by_number.setdefault(number, error)
        if known is not error and isinstance(known, BaseException):
            return known.with_traceback(None)
        self._theirs[id(error)] = (error, number)
        self.said[id(error)] = str(said)
        return error

    def stand_in(self, number: int, what: str, about: Any = None) -> Any:
        if number not in self._by_number:
            value: Any
            match what:
                case "exception":
                    value = self._error(about)
                case "class":
                    value = self._classes[about]
                case "coroutine":
                    value = self._waiting(number)
                case _:
                    kind = self._classes[about]
                    standing = Standing.NAMED if handles.is_named(kind) else Standing.UNKNOWN
                    value = handles.new_handle(kind, self, int(number), standing)
            self._by_number[number] = value
            self._theirs[id(value)] = (value, number)
        value = self._by_number[number]
        if isinstance(value, Handle) and handles.facts(value)[2] == Standing.MADE:
            # Made by the test, but now given by the answer, perhaps in the place of something else.
            return handles.new_handle(type(value), self, number, Standing.NAMED)
        return value

    async def _waiting(self, number: int) -> Any:
        return self.ask("op", "await", self._by_number[number])

    def receive(self) -> Any:
        """The next message, when the classes that it speaks of are known."""
        message = super().receive()
        try:
            for number, name, module, operators, parents, above in message.get("classes", ()):
                known = [str(each) for each in operators if each in OPERATIONS]
                bases = [self._classes[parent] for parent in parents]
                self._classes[number] = handles.mirror(self, int(number), str(name), str(module), known, bases, above)
                self._theirs[id(self._classes[number])] = (self._classes[number], int(number))
        except Exception as fault:  # no honest process has sent this
            raise self.gone() from fault
        return message

    def number_of(self, value: Any) -> int | None:
        if isinstance(value, Given):
            value = value.kind
        if isinstance(value, Handle):
            return int(handles.facts(value)[1])
        known = self._theirs.get(id(value))
        return known[1] if known is not None and known[0] is value else None

    # What the tests have, for the answer.

    def describe(self, value: Any) -> list[Any]:
        return lent.describe(value, self.keep)

    def named(self, value: Any) -> dict[str, Any] | None:
        if isinstance(value, Given):
            value = value.kind
        if isinstance(value, types.ModuleType):
            return {"module": value.__name__}
        name = (value if isinstance(value, type) else type(value)).__name__
        if name in self._shared and self._space.get(name) in (value, type(value)):
            return {"shared": name} if isinstance(value, type) else {"member": [name, value.name]}
        if isinstance(value, type) and wire.in_library(value):
            return {"library": [value.__module__, value.__name__]}
        if isinstance(value, lent.Awaited):
            return {"awaited": wire.as_data(value.value, self._keep)}
        builtin = "NoneType" if value is type(None) else wire.builtin_name(value)
        return None if builtin is None else {"builtin": builtin}

    def find_named(self, name: str, data: Any) -> Any:
        """What the answer names is looked up only where it is harmless: a type that makes plain data, an exception."""
        match name:
            case "builtin":
                found = type(None) if data == "NoneType" else vars(builtins)[data]
                if found in SAFE or (isinstance(found, type) and issubclass(found, Exception)):
                    return found
                return self._error([data])
            case "shared" if data in self._shared:
                return self._space[data]
            case "member" if data[0] in self._shared:
                return self._space[data[0]][data[1]]
        raise ValueError(name)

    def record(self, value: Any) -> str | None:
        kind = type(value)
        if issubclass(kind, Handle):
            return ""  # whatever it says that it is
        name = kind.__name__
        if name not in self._shared or self._space.get(name) is not kind:
            return None
        return None if issubclass(kind, tuple | BaseException | type) or hasattr(kind, "__members__") else name

    def build(self, name: str) -> Any:
        if name not in self._shared:
            raise ValueError(name)
        kind = self._space[name]
        return kind.__new__(kind)

    def do(self, do: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Only with what the answer was given, only what its type can do, and nothing of what is inside."""
        name, value = (args[0], args[1]) if do == "op" else ("", args[0])
        if do in ("getattr", "setattr") and args[1] in _noted(value):
            raise AttributeError(f"{args[1]}: what a mock of the tests has noted")
        if not any(value is kept for kept in self._kept):
            raise TypeError("no object of the tests")
        if do == "setattr" or name in ("setitem", "delitem"):
            if self.examination is not None and not self.examination.changes_count:
                return None
            self._note_change(value, args[-1])
        if do == "call":
            result = value(*args[1:], **kwargs)
        elif name == "await":
            result = value
        elif do == "op" and name in OPERATIONS:
            result = operate(name, value, *args[2:], **kwargs)
        elif do in ("getattr", "setattr") and not args[1].startswith(_INNARDS) and not inspect.isroutine(value):
            if do == "setattr" and (isinstance(value, type) or callable(getattr(value, args[1], None))):
                raise AttributeError("a class or method of the tests")
            result = getattr(builtins, do)(*args)
        else:
            raise AttributeError(f"{do} {args[1]}")
        if not inspect.isawaitable(result) or self.number_of(result) is not None:
            return result
        waiting = do == "call" and not inspect.iscoroutinefunction(value)
        return lent.Awaited(cases.awaited(result)) if waiting else cases.awaited(result)

    def _note_change(self, value: Any, new: Any) -> None:
        """The answer sets something in an object of the test."""
        before = evidence.ATOM if type(new) in evidence.ATOMS else None
        known = self.changes.get(id(value), (value, before))
        self.changes[id(value)] = (value, before and known[1])

    def about(self, error: BaseException) -> dict[str, Any]:
        """What an assertion of the test finds wrong stays wrong, though the answer that called it may pass over it."""
        if isinstance(error, AssertionError) and self._place:
            statement = self._pieces[self._place["test"]].failed(error)
            if statement is not None and names_of(statement) - vars(builtins).keys():
                Unsure("an assertion of the test failed while the code called it")
        return {}


def _is_everywhere(value: Any) -> bool:
    """Whether Python has one object for all such values, so that it does not tell where it comes from."""
    small = type(value) is int and -6 < value < 257
    return value is None or small or (type(value) in (str, bytes) and len(value) < 2)


def _noted(value: Any) -> set[str]:
    """The attributes by which a mock of the tests tells what was done to it, and is told what it is."""
    mock = sys.modules.get("unittest.mock")
    if mock is None or not isinstance(value, mock.NonCallableMock):
        return set()
    return set(dir(mock.AsyncMock)) - {"return_value", "side_effect"}


def _known_error(name: str) -> Any:
    """The class of an exception that both sides have: Python's own, or one of a module that is loaded here."""
    module, _, short = name.rpartition(".")
    if not module:
        found = vars(builtins).get(name)
        return None if found in _ENDS else found
    return None if module.partition(".")[0] in _TESTING else getattr(sys.modules.get(module), short, None)
