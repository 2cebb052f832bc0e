"""What stands in the judge's process for something of the answer's."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .judge import Judge


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
