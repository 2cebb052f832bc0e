"""Compares two mathematical answers with math-verify, in a process of its own (see sandbox/process.py)."""

import re
from typing import Any

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy import Basic, Float, MatrixBase, Set, Tuple
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean

_TARGETS = (LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig())
_TEXT = re.compile(r"\\(?:text|textbf|mathrm)\s*\{([^{}]*)\}")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\s*\{[^{}]*\}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
ROUNDING = 0.01
"""A decimal this close to the exact value was rounded; further off, it was computed wrongly."""


def handle(request: dict[str, str]) -> str:
    """`equal`, or what is wrong: `unreadable`, `words`, `kind`, `rounded` or `value`."""
    expected, given = _parse(request["expected"]), _parse(request["given"])
    # Its timeouts are signals; this process has limits of its own.
    if verify(expected, given, timeout_seconds=None):
        return "equal"
    wanted, found = _expression(expected), _expression(given)
    if found is None:
        return "unreadable"
    if wanted is None or _words(request["expected"]):  # the answer is a name or a word: there is nothing to tell apart
        return "value"
    if _words(request["given"]):
        return "words"
    if _kind(wanted) != _kind(found):
        return "kind"
    return "rounded" if _rounded(wanted, found) else "value"


def _parse(text: str) -> list[Any]:
    return list(parse(rf"\boxed{{{text}}}", _TARGETS, parsing_timeout=None))


def _expression(parsed: list[Any]) -> Any:
    return next((item for item in parsed if isinstance(item, Basic | MatrixBase)), None)


def _words(text: str) -> list[str]:
    return _WORD.findall(_ENVIRONMENT.sub(" ", _TEXT.sub(r" \1 ", text)))


def _kind(value: Any) -> str:
    kinds = {"matrix": MatrixBase, "collection": Set | Tuple, "relation": Relational | Boolean}
    for name, types in kinds.items():
        if isinstance(value, types):
            return name
    return "number" if getattr(value, "is_number", False) else "expression"


def _rounded(wanted: Any, found: Any) -> bool:
    if _kind(wanted) != "number" or wanted.is_integer or not found.has(Float):
        return False
    try:
        exact, decimal = complex(wanted.evalf()), complex(found.evalf())
    except (TypeError, ValueError, OverflowError):  # infinities and what sympy cannot put a number to
        return False
    return abs(exact - decimal) <= ROUNDING * abs(exact)
