"""Code that a test would run in the judge's process without having it: what it evaluates, unpickles or imports from files.

The answer may have written it. An expression of numbers and operators, and a pickle of data, are harmless; a test that would
run anything else cannot be judged.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from .program import SAFE

_SYNTAX = """
Module Interactive Expression Expr Assign Constant BinOp UnaryOp BoolOp Compare operator unaryop boolop cmpop expr_context
Tuple List Set Dict Call Name IfExp Subscript Slice
"""
_HARMLESS_SYNTAX = tuple(getattr(ast, name) for name in _SYNTAX.split())
_HARMLESS_NAMES = frozenset(("abs", "divmod", "len", "max", "min", "pow", "round", "sorted", "sum"))
_HOMES = frozenset(("collections", "datetime", "decimal", "fractions", "pathlib", "tests", "uuid", "zoneinfo"))
"""Modules whose classes make data of a pickle, or are the test's own."""
_LIBRARIES = frozenset(("numpy", "pandas", "pyarrow", "scipy", "sklearn"))
_MAKERS = frozenset(
    (
        ("_codecs", "encode"),
        ("array", "_array_reconstructor"),
        ("pyarrow.lib", "type_for_alias"),
        ("pyarrow.lib", "py_buffer"),
        ("copyreg", "_reconstructor"),
    )
)


_RUNS = ("exec", "import", "marshal.loads")


def watch(
    text: str, file: str, folder: str, known: Callable[[str], bool], refuse: Callable[[str], BaseException]
) -> None:
    """From now on raise what `refuse` makes of a reason where the test in `file`, whose `text` is given, runs such code.
    `folder` is where the answer can write; a name may be called if it is `known` to lead back to the answer."""
    quoted = {node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)}

    def harmless(source: str) -> bool:
        try:
            tree = ast.parse(source.strip())
        except (SyntaxError, ValueError):
            return True  # it does not run either
        nodes = list(ast.walk(tree))
        names = {node.id for node in nodes if isinstance(node, ast.Name)} - _HARMLESS_NAMES
        names -= {kind.__name__ for kind in SAFE}
        return all(isinstance(node, _HARMLESS_SYNTAX) for node in nodes) and all(
            name in quoted or known(name) for name in names
        )

    def by_the_test(frame: FrameType | None) -> bool:
        return frame is not None and frame.f_back is not None and frame.f_back.f_code.co_filename == file

    def written(path: str) -> bool:
        relative = not path.startswith(("/", "<")) and os.path.lexists(path.partition("/")[0])
        return bool(path) and (relative or path.startswith(folder))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in _RUNS and written(_file_of(event, args, inspect.currentframe())):
            raise refuse("it runs a file that the code may have written")
        if event == "pickle.find_class":
            if not _makes_data(*map(str, args)):
                raise refuse(f"it unpickles `{args[0]}.{args[1]}`")
        elif event in ("compile", "marshal.loads") and by_the_test(inspect.currentframe()):
            source = args[0] if event == "compile" else b""
            words = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
            if event != "compile" or (words is not None and words not in quoted and not harmless(words)):
                raise refuse("it runs code that is not in the test")

    sys.addaudithook(hook)


def _file_of(event: str, args: tuple[Any, ...], frame: FrameType | None) -> str:
    """Where the code is that is run now. What is imported as compiled may forge its name."""
    if event == "marshal.loads" and frame is not None and frame.f_back is not None:
        return str(frame.f_back.f_locals.get("bytecode_path", ""))
    return str(args[0].co_filename if event == "exec" else args[1] or "" if event == "import" else "")


def _makes_data(home: str, name: str) -> bool:
    if home == "builtins":
        return name in {kind.__name__ for kind in SAFE}
    if (home, name) in _MAKERS or "." in name:
        return (home, name) in _MAKERS
    if home.partition(".")[0] in _LIBRARIES:
        return name.startswith("_") or isinstance(getattr(importlib.import_module(home), name, None), type)
    return home in _HOMES
