"""What cannot be judged, and the classes that are no methods."""

from __future__ import annotations

from typing import Any


class Unsure(BaseException):
    """A test that cannot be judged, and why: a test may swallow the exception, but not what is kept here."""

    why = ""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        Unsure.why = why


class Given(type):
    """The class of a class that is an attribute of something in the place of data. It is what it is, but no method."""

    kind: type

    @staticmethod
    def of(kind: type) -> Given:
        try:
            return Given(kind.__name__, (kind,), {"kind": kind})
        except TypeError:  # nothing can derive from it
            return Given(kind.__name__, (), {"kind": kind})

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise Unsure(f"it calls `{cls.__name__}`, a class that something in the place of data gave")

    def __eq__(cls, other: object) -> bool:
        return cls.kind is (other.kind if isinstance(other, Given) else other)

    def __hash__(cls) -> int:
        return hash(cls.kind)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.kind)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, cls.kind)

    def __repr__(cls) -> str:
        return repr(cls.kind)
