"""Two processes that ask each other to do something with their objects: the judge and the program.

What is plain data goes over as a copy. An object that is none stays where it is: the other side gets a stand-in, and what is
done with that is asked for here. Arguments that were changed in place are told of with the result, and what both go on using
(see shared.py) with the next message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from . import wire
from .shared import Shared

_NAMES = """
call iter next len contains getitem setitem delitem enter exit aenter aexit aiter anext await bool float int index complex str
repr format hash eq ne lt le gt ge add sub mul matmul truediv floordiv mod divmod pow and or xor lshift rshift radd rsub rmul
rmatmul rtruediv rfloordiv rmod rpow rand ror rxor iadd isub imul iand ior ixor neg pos abs invert round trunc floor ceil
reversed
"""
OPERATIONS = frozenset(_NAMES.split())
"""Operators and protocols of Python that stand-ins pass on, without their underscores."""
_OF_EVERY_OBJECT = ("eq", "ne", "lt", "le", "gt", "ge", "hash", "str", "repr", "format")


def operations(kind: type) -> list[str]:
    """Those that a type has of its own."""
    found = []
    methods: dict[str, Any] = {}
    for parent in reversed(kind.__mro__):
        methods.update(vars(parent))
    for name in OPERATIONS:
        method = methods.get(f"__{name}__")
        if method is not None and not (name in _OF_EVERY_OBJECT and method is vars(object)[f"__{name}__"]):
            found.append(name)
    return sorted(found)


class Gone(BaseException):
    """The other process is gone or talks nonsense."""


class Pipes:
    """The way to the other process."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing

    def send(self, message: dict[str, Any]) -> None:
        wire.send(self._writing, message)

    def receive(self) -> Any:
        return wire.receive(self._reading)


class Peer:
    """One side. What it does for the other, and how it stands in for the other's objects, is up to its subclasses."""

    def __init__(self, channel: Any, first: int) -> None:
        self.channel = channel
        self._both = Shared(first)
        self._kept: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._lock = threading.RLock()  # threads take turns; the one whose turn it is may be asked in the middle of it

    def ask(self, do: str, *args: Any, **kwargs: Any) -> Any:
        """Have the other side do something; its exception is raised here."""
        with self._lock:
            packer = self._packer()
            request: dict[str, Any] = {"do": do, "args": [packer.pack(value) for value in args]}
            request["kwargs"] = {name: packer.pack(value) for name, value in kwargs.items()}
            request |= {"both": self._both.changes(packer), "table": packer.table(), "dropped": self.drop()}
            reply = self._exchange(request | self.around())
            return self._result(args[0] if do == "op" else do, reply, packer.values, request["table"], args)

    def drop(self) -> list[int]:
        """What this side does not hold any more."""
        return self._both.drop()

    def around(self) -> dict[str, Any]:
        """What else goes with a request."""
        return {}

    def settle(self, reply: dict[str, Any]) -> None:
        """What else came with a reply."""

    def _result(self, do: str, reply: dict[str, Any], given: list[Any], table: list[Any], args: Sequence[Any]) -> Any:
        try:
            unpacker = self._unpacker(reply["table"], given)
            for place, entry in reply["changed"]:
                if entry[0] == table[place][0]:
                    self.changed(unpacker, given[place], entry)
            self._follow(unpacker, reply, args)
            self._both.add(reply["kept"], unpacker.values, self._packer())
            if self.fixes(do, args):
                self._both.fixed |= {number for place, number in reply["kept"] if place >= len(given)}
            self.settle(reply)
            if "raised" not in reply:
                return unpacker.unpack(reply["value"])
            error = unpacker.unpack(reply["raised"])
        except Exception as fault:  # data that no honest process has sent
            raise self.gone() from fault
        raise self.raised(do, error, reply)

    def _follow(self, unpacker: wire.Unpacker, message: dict[str, Any], args: Sequence[Any] = ()) -> None:
        """Take note of what the other side did to what both hold, given or not given to it just now."""
        for number, entry in message["both"]:
            value = self._both.values[number]
            if number in self._both.fixed:
                self._both.forget([number])
            elif entry[0] == self._both.kind(number):
                self.changed(unpacker, value, entry, late=all(value is not each for each in args))
        self._both.forget(message["dropped"], told=True)
        if message["both"]:
            self._both.changes(self._packer())

    def fixes(self, do: str, args: Sequence[Any]) -> bool:
        """Whether results do not follow what the other side does later."""
        return False

    def changed(self, unpacker: wire.Unpacker, value: Any, entry: Any, late: bool = False) -> None:
        """The other side has changed a value in place, of an earlier message if it is `late`."""
        unpacker.fill(value, entry)

    def send(self, message: dict[str, Any]) -> None:
        self.channel.send(message)

    def receive(self) -> Any:
        return self.channel.receive()

    def _exchange(self, message: dict[str, Any] | None) -> dict[str, Any]:
        try:
            if message is not None:
                self.send(message)
            reply = self.receive()
            while isinstance(reply, dict) and "do" in reply:  # it asks back
                self.send(self.answer(reply))
                reply = self.receive()
        except (OSError, EOFError, ValueError, RecursionError) as fault:
            raise self.gone() from fault
        if not isinstance(reply, dict):
            raise self.gone()
        return reply

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What is sent back for a request."""
        try:
            unpacker = self._unpacker(request["table"], [])
            self._follow(unpacker, request)
            args = [unpacker.unpack(value) for value in request["args"]]
            kwargs = {str(name): unpacker.unpack(value) for name, value in request["kwargs"].items()}
        except Exception as fault:
            return self._reply([], "raised", [fault], [])
        given = unpacker.values
        before = self._entries(given)
        try:
            name, outcome = "value", [self.do(request["do"], args, kwargs)]
        except BaseException as error:
            if isinstance(error, Gone):
                raise
            name, outcome = "raised", [error]
        args.clear()  # no longer referred to from here
        kwargs.clear()
        return self._reply(given, name, outcome, before)

    def _entries(self, values: list[Any]) -> list[Any]:
        packer = self._packer(values)
        return [packer.entry(value) for value in values]

    def _reply(self, given: list[Any], name: str, outcome: list[Any], before: list[Any]) -> dict[str, Any]:
        packer = self._packer(given)
        now = [packer.entry(value) for value in given]
        changed = [[place, entry] for place, entry in enumerate(now) if entry != before[place]]
        about = self.about(outcome[0]) if name == "raised" else {}
        reply = {name: packer.pack(outcome[0]), "changed": changed, **about}
        reply |= {"both": self._both.changes(packer), "table": packer.table(), "dropped": self.drop()}
        given.clear()
        outcome.clear()
        reply["kept"] = self._both.number(packer.values)
        if reply["kept"]:
            self._both.add(reply["kept"], packer.values, self._packer())
        return reply

    def _packer(self, known: Any = ()) -> wire.Packer:
        return wire.Packer(self._keep, self.record, known, self._both.numbers)

    def _unpacker(self, table: Any, known: list[Any]) -> wire.Unpacker:
        return wire.Unpacker(self._find, table, self.build, known, self._both.values)

    def _keep(self, value: Any) -> Any:
        """What stands in for a value that is not plain data."""
        number = self.number_of(value)
        if number is not None:
            return {"yours": number}
        if (named := self.named(value)) is not None:
            return named
        if isinstance(value, BaseException):
            packer = self._packer()
            state = {
                name: item for name, item in vars(value).items() if not name.startswith("_") or name == "__notes__"
            }
            if (
                isinstance(value.__cause__, Exception) and value.__cause__.__cause__ is None
            ):  # one is enough, and has an end
                state["__cause__"] = value.__cause__
            packed = [packer.pack(type(value)), packer.pack(list(value.args)), packer.pack(state)]
            return {"error": [packed, packer.table()]}
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._kept)
            self._kept.append(value)
        return {"mine": [self._numbers[id(value)], *self.describe(value)]}

    def _find(self, stand_in: dict[str, Any]) -> Any:
        ((name, data),) = stand_in.items()
        if name == "yours":
            return self._kept[data]
        if name == "error":
            unpacker = self._unpacker(data[1], [])
            return make_error(*map(unpacker.unpack, data[0]))
        return self.stand_in(*data) if name == "mine" else self.find_named(name, data)

    # What the two sides do differently.
    do: Callable[[str, list[Any], dict[str, Any]], Any]
    """What is asked for."""
    number_of: Callable[[Any], int | None]
    """The number of a stand-in for one of the other's objects."""
    describe: Callable[[Any], list[Any]]
    """What the other side must know of an object to stand in for it."""
    stand_in: Callable[..., Any]
    """The stand-in for an object of the other's, from its number and what `describe` said there."""
    named: Callable[[Any], dict[str, Any] | None]
    find_named: Callable[[str, Any], Any]
    """Values that both sides have, by name."""
    record: Callable[[Any], str | None]
    build: Callable[[str], Any]
    """Classes that both sides have: the name of the one that a value is of, and an empty object of it."""
    about: Callable[[BaseException], dict[str, Any]]
    gone: Callable[[], BaseException]
    raised: Callable[[str, BaseException, dict[str, Any]], BaseException]


def make_error(kind: Any, args: list[Any], state: dict[str, Any]) -> BaseException:
    """An exception of a type, whatever its type wants to be made with."""
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError(kind)
    try:
        error = kind(*args)
    except Exception:  # it wants other arguments than those it keeps
        error = kind.__new__(kind, *args)
        error.args = tuple(args)
    for name, value in state.items():
        setattr(error, str(name), value)
    return error


def exception_class(ancestry: list[str], known: Callable[[str], Any]) -> type[Exception]:
    """A class for an exception of the other side: of the same name, and of the nearest kind that is `known` here. It never
    leaves more than an error leaves: SystemExit and its like are ordinary here."""
    names = [str(name) for name in ancestry]
    kinds = [kind for name in names if isinstance(kind := known(name), type)]
    base = next((kind for kind in kinds if issubclass(kind, Exception)), Exception)
    short = names[0].rpartition(".")[2]
    return base if base.__name__ == short else type(short, (base,), {})


def ancestry(kind: type) -> list[str]:
    """Of an exception: its class and those above, with the modules of all that are not Python's own."""
    return [
        parent.__name__ if parent.__module__ == "builtins" else f"{parent.__module__}.{parent.__qualname__}"
        for parent in kind.__mro__
    ]
