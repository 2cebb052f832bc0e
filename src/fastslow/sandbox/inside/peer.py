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
from .errors import make_error
from .shared import Shared

_NAMES = """
call iter next len contains getitem setitem delitem enter exit aenter aexit aiter anext await bool float int index complex str
repr format bytes fspath hash eq ne lt le gt ge neg pos abs invert round trunc floor ceil reversed
"""
_ARITHMETIC = "add sub mul matmul truediv floordiv mod divmod pow and or xor lshift rshift"
OPERATIONS = frozenset([*_NAMES.split(), *(way + name for name in _ARITHMETIC.split() for way in ("", "r", "i"))])
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


def operate(operation: str, value: Any, *args: Any, **kwargs: Any) -> Any:
    """As Python does it: with what stands in the type, bound to the value where it binds."""
    name = f"__{operation}__"
    method: Any = next((vars(kind)[name] for kind in type(value).__mro__ if name in vars(kind)), None)
    bind = getattr(type(method), "__get__", None)
    return (method if bind is None else bind(method, value, type(value)))(*args, **kwargs)


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
            wire.NAN.clear()
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
                self._both.fixed |= {number for place, number in reply["kept"] if not 0 <= place < len(given)}
            self.settle(reply)
            if "raised" not in reply:
                return unpacker.unpack(reply["value"])
            error = unpacker.unpack(reply["raised"])
        except Exception as fault:  # data that no honest process has sent
            raise self.gone() from fault
        raise self.raised(do, error, reply)

    def _follow(self, unpacker: wire.Unpacker, message: dict[str, Any], args: Sequence[Any] = ()) -> None:
        """Take note of what the other side did to what both hold, given or not given to it just now."""
        changes = [(number, entry) for number, entry in message["both"] if entry[0] == self._both.kind(number)]
        new = [number for number, _ in changes if number in self._both.fixed]
        for number, entry in changes:  # what has come stays as it was
            if number in new:
                self._both.renew(number, unpacker.empty(*entry))
        for number, entry in changes:
            value = self._both.values[number]
            if number in new:
                unpacker.fill(value, entry)
            else:
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
        return wire.Unpacker(self._find, table, self.build, known, self._both.values, self.trait)

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
            return {"error": [packed, packer.table(), *self.more(value)]}
        return {"mine": [self.keep(value), *self.describe(value)]}

    def keep(self, value: Any) -> int:
        """The number of an object that the other side has a stand-in for."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._kept)
            self._kept.append(value)
        return self._numbers[id(value)]

    def more(self, error: BaseException) -> list[Any]:
        """What goes over with an exception beside its class, arguments and attributes."""
        return []

    def trait(self, owner: Any, name: str, value: Any) -> Any:
        """What becomes an attribute of data from the other side."""
        return value

    def error(self, error: BaseException) -> BaseException:
        """An exception of the other side, with what came beside."""
        return error

    def _find(self, stand_in: dict[str, Any]) -> Any:
        ((name, data),) = stand_in.items()
        if name == "yours":
            return self._kept[data]
        if name == "error":
            packed, table, *more = data
            kind, args, state = map(self._unpacker(table, []).unpack, packed)
            state = {name: self.trait(kind, name, value) for name, value in state.items()}
            return self.error(make_error(kind, args, state), *more)
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
