"""What can be seen of a harness's code by reading it: that it parses, and defines the function that is called."""

from __future__ import annotations

import ast
import warnings
from typing import NamedTuple

from fastslow.base.errors import TaskError
from fastslow.base.text import one_line

LONGEST = 64_000
"""Characters of code that are read at all."""


class Signature(NamedTuple):
    entry: str
    parameters: tuple[str, ...]


def read_signature(signature: str) -> Signature:
    """The name and the parameters in `solve(problem, ask, tools)`."""
    try:
        (function,) = ast.parse(f"def {signature}: pass").body
        assert isinstance(function, ast.FunctionDef)
    except (SyntaxError, ValueError, AssertionError):
        raise TaskError(
            f"the signature '{one_line(signature, 100)}' is not NAME(PARAMETERS), e.g. solve(problem, ask, tools)"
        ) from None
    return Signature(function.name, _positional(function))


def fault_of(code: str, signature: str) -> str | None:
    """What is wrong with code, in words for who wrote it; None if nothing is."""
    if len(code) > LONGEST:
        return f"the code is too long: {len(code)} characters, at most {LONGEST} are read"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(code).body
    except SyntaxError as error:
        shown = f" (`{one_line(error.text, 100)}`)" if error.text else ""
        return f"the code does not parse: line {error.lineno}{shown}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"the code does not parse: {type(error).__name__}: {one_line(error)}"
    entry, wanted = read_signature(signature)
    functions = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == entry]
    if not functions:
        return f"the code defines no function {signature} at its top level"
    given = _positional(functions[-1])
    free = given[: len(given) - len(functions[-1].args.defaults)]
    if given[: len(wanted)] != wanted or len(free) > len(wanted):
        return f"the code defines {entry}({', '.join(given)}), expected {signature}"
    return None


def _positional(function: ast.FunctionDef) -> tuple[str, ...]:
    return tuple(each.arg for each in (*function.args.posonlyargs, *function.args.args))
