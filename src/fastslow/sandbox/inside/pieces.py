"""Tests as the judge reads them: their names, their assertions, and which values in them come from the answer."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from types import CodeType
from typing import Any

from . import wire

TESTS = "tests.py"
_OTHERWISE_INSIDE = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)
"""They would mean something else inside a function of their own."""
_LOOPS = (ast.For, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Piece:
    """One test, a piece of Python or a call with the value it must return."""

    def __init__(self, test: dict[str, Any]) -> None:
        self.call = compile(test["call"], TESTS, "eval") if "call" in test else None
        self.text: str = test["call"] if "call" in test else test["code"].strip()
        self.expected = wire.unpack(test.get("expected"), lambda packed: packed)
        self._tree = ast.parse(self.text)
        self.names = names_of(self.text)
        around = list(_assertions(self._tree))
        self.only_in_loops = bool(around) and all(any(isinstance(each, _LOOPS) for each in over) for over in around)
        """Every assertion is in a loop."""
        self.only_in_module_loops = self.only_in_loops and not any(
            isinstance(each, _FUNCTIONS) for over in around for each in over
        )

    def compiled(self, suspects: set[str]) -> CodeType:
        """The code with its assertions replaced by calls of the judge. `suspects` are the names of values that come from the
        answer; those that this test binds are added."""
        _spread(self._tree, suspects)
        checked = ast.fix_missing_locations(_Assertions(suspects, self._tree).visit(ast.parse(self.text)))
        return compile(checked, TESTS, "exec")

    def statement(self, error: BaseException) -> str:
        """The statement of the test that an error came through last."""
        line, part = 0, error.__traceback__
        while part is not None:
            if part.tb_frame.f_code.co_filename == TESTS:
                line = part.tb_lineno
            part = part.tb_next
        statements = [node for node in ast.walk(self._tree) if isinstance(node, ast.stmt)]
        around = [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]
        return ast.unparse(around[-1]) if around else self.text


def names_of(code: str) -> set[str]:
    return {name for name in _used(ast.parse(code)) if not name.startswith("__")}


class _Assertions(ast.NodeTransformer):
    """Turns `assert left == right` into a call of `__check__`, which keeps the two values, and other assertions into one of
    `__true__`. The parameters of a test's function may stand for the answer's."""

    def __init__(self, suspects: set[str], tree: ast.AST) -> None:
        self.suspects = suspects
        self._tree = tree
        self._computed = _Computed(_computed_from_arguments(tree, suspects))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        given = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
        inner = self.suspects | given
        _spread(node, inner)
        return _Assertions(inner, self._tree).generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.stmt | list[ast.stmt]:
        if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And):
            parts = [ast.copy_location(ast.Assert(part, node.msg), node) for part in node.test.values]
            visited = [self.visit_Assert(part) for part in parts]
            return [each for found in visited for each in (found if isinstance(found, list) else [found])]
        if any(isinstance(each, _OTHERWISE_INSIDE) for each in ast.walk(node.test)):
            return node
        compare, text = node.test, ast.Constant(ast.unparse(node))
        if not isinstance(compare, ast.Compare) or len(compare.ops) != 1:
            return _call("__true__", [text, _later(node.test)], node)
        sides = [compare.left, compare.comparators[0]]
        texts = _pair([ast.unparse(side) for side in sides])
        ours = [bool(_used(side) & self.suspects) for side in sides]
        if any(ours):  # the other side is computed again, from arguments that the answer has not changed
            sides = [side if own else self._computed.visit(side) for side, own in zip(sides, ours, strict=True)]
        operation = ast.Constant(type(compare.ops[0]).__name__)
        return _call("__check__", [operation, text, texts, _pair(ours), *map(_later, sides)], node)


class _Computed(ast.NodeTransformer):
    """Puts the expressions that variables were computed by in the place of their names."""

    def __init__(self, expressions: dict[str, ast.expr]) -> None:
        self.expressions = expressions

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.expressions:
            return node
        return self.visit(copy.deepcopy(self.expressions[node.id]))


def _computed_from_arguments(tree: ast.AST, suspects: set[str]) -> dict[str, ast.expr]:
    """The variables that are computed once, from what the answer's functions are also given."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _used(node.func) & suspects]
    lent = {name for call in calls for argument in call.args for name in _used(argument)} - suspects
    stored = [name.id for name in ast.walk(tree) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, used = node.targets[0].id, _used(node.value)
            if stored.count(name) == 1 and name not in used and not used & suspects and used & (lent | found.keys()):
                found[name] = node.value
    return found


def _call(function: str, arguments: list[ast.expr], node: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Expr(ast.Call(ast.Name(function, ast.Load()), arguments, [])), node)


def _pair(values: Sequence[str | bool]) -> ast.expr:
    return ast.Tuple([ast.Constant(value) for value in values], ast.Load())


def _later(expression: ast.expr) -> ast.expr:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), expression)


def _spread(tree: ast.AST, suspects: set[str]) -> None:
    """Add the names that are bound by a statement, or in a comprehension, that uses a suspect."""
    bindings = []
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node is not tree:
            bindings.append(({node.name}, _used(node)))
        elif isinstance(node, ast.For | ast.comprehension):
            bindings.append((_stored(node.target), _used(node.iter)))
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.withitem):
            bindings.append((_stored(node), _used(node)))
    size = -1
    while size != len(suspects):
        size = len(suspects)
        for names, used in bindings:
            if used & suspects:
                suspects |= names


def _used(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _stored(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _assertions(node: ast.AST, above: tuple[ast.AST, ...] = ()) -> Any:
    """What is around every assertion."""
    if isinstance(node, ast.Assert):
        yield above
    for child in ast.iter_child_nodes(node):
        yield from _assertions(child, (*above, node))
