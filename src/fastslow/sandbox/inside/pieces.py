"""Tests as the judge reads them: run as they are written, but for assertions, which tell what they compare."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable
from types import CodeType
from typing import Any, cast

from . import wire

TESTS = "tests.py"
JUDGE = "__judge__"
ENDS = ("StopIteration", "StopAsyncIteration")
LEFT, RIGHT = "__left__", "__right__"


class Piece:
    """One test, a piece of Python or a call with the value it must return."""

    def __init__(self, test: dict[str, Any]) -> None:
        self.call = compile(test["call"], TESTS, "eval", dont_inherit=True) if "call" in test else None
        self.text: str = test["call"] if "call" in test else test["code"].strip()
        self.expected = wire.from_data(test["expected"], lambda packed: packed) if "expected" in test else None
        self.tree = self._parsed()
        self.names = names_of(self.tree)
        self.checks = has_checks(self.tree)
        """Whether it has assertions, so that one of them must be reached."""

    def compiled(self, rewrite: Callable[[ast.Module], ast.Module]) -> CodeType:
        return compile(ast.fix_missing_locations(rewrite(self._parsed())), TESTS, "exec", dont_inherit=True)

    def _parsed(self) -> ast.Module:
        tree: ast.Module = _Split().visit(ast.parse(self.text))
        return tree

    def failed(self, error: BaseException) -> ast.stmt | None:
        """The assertion of the test that an error came through last, if it was one."""
        around = self._around(error)
        asserts = around and (
            isinstance(around[-1], ast.Assert) or is_assertion(getattr(around[-1], "value", around[-1]))
        )
        return around[-1] if asserts else None

    def statement(self, error: BaseException) -> str:
        """The statement of the test that an error came through last."""
        around = self._around(error)
        return ast.unparse(around[-1]) if around else self.text

    def _around(self, error: BaseException) -> list[ast.stmt]:
        line, part = 0, error.__traceback__
        while part is not None:
            if part.tb_frame.f_code.co_filename == TESTS:
                line = part.tb_lineno
            part = part.tb_next
        statements = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]
        return [node for node in statements if node.lineno <= line <= (node.end_lineno or node.lineno)]


def names_of(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and not each.id.startswith("__")}


def quoted_names(tree: ast.AST) -> set[str]:
    """All words in its texts."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return set(re.findall(r"\w+", " ".join(texts)))


def is_assertion(node: ast.AST) -> bool:
    """Whether a node is a call of a method or function that asserts something, as unittest's and numpy's do."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.startswith("assert")


def expects_error(node: ast.AST) -> bool:
    """Whether a node is `with pytest.raises(…):`."""
    calls = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
    return any(isinstance(each, ast.Call) and ast.unparse(each.func) in ("raises", "pytest.raises") for each in calls)


def has_checks(tree: ast.AST) -> bool:
    """Whether a test asserts anything."""
    return any(isinstance(node, ast.Assert) or is_assertion(node) or expects_error(node) for node in ast.walk(tree))


class Uses:
    """What tests do with a name: whether they only call it and compare what it gives, as they do with a function."""

    def __init__(self, tree: ast.Module) -> None:
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._read = [node for node in self._parents if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        self._defined = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        self._followed = set[str]()
        bound = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        given = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
        self._known = {*bound, *given, *self._defined, *vars(builtins)}
        """Names that are not the answer's."""

    def as_function(self, name: str) -> bool:
        self._followed = {name}
        return any(node.id == name for node in self._read) and self._all(name, self._called, name)

    def _all(self, name: str, used: Callable[[ast.Name, str], bool], kind: str) -> bool:
        self._followed.add(name)
        return all(used(node, kind) for node in self._read if node.id == name)

    def _called(self, node: ast.Name, name: str) -> bool:
        call = self._parents[node]
        if not isinstance(call, ast.Call):
            return False
        if call.func is node:
            return self._compared(call, name)
        function = self._defined.get(ast.unparse(call.func))  # `check(name)`
        if function is None or node not in call.args[: len(function.args.args)]:
            return False
        given = function.args.args[call.args.index(node)].arg
        return given in self._followed or self._all(given, self._called, given)

    def _compared(self, node: ast.expr, name: str) -> bool:
        """Whether a value ends, as it is or computed with, in a comparison with what the tests know."""
        around, inner = self._parents[node], cast(ast.AST, node)
        while isinstance(around, ast.BinOp | ast.UnaryOp) or (
            isinstance(around, ast.Call) and ast.unparse(around.func) in ("abs", "round")
        ):
            around, inner = self._parents[around], around
        if isinstance(around, ast.Assign) and inner is node and isinstance(around.targets[0], ast.Name):
            kept = around.targets[0].id
            return kept in self._followed or self._all(kept, self._compared, name)
        if isinstance(around, ast.Compare):
            if isinstance(node, ast.Name) and isinstance(
                around.ops[0], ast.In | ast.NotIn
            ):  # of an object that is kept
                return False
        elif not is_assertion(around):
            return isinstance(around, ast.Assert)
        beside = set(ast.walk(around)) - set(ast.walk(node))
        return all(each.id in self._known for each in beside if isinstance(each, ast.Name))


class _Split(ast.NodeTransformer):
    """Makes two assertions of one that holds where both do; expects the end of an iteration in both ways that it comes."""

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        self.generic_visit(node)
        node.type = node.type and _either(node.type)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if node.args and ast.unparse(node.func).rpartition(".")[2] in ("assertRaises", "assertRaisesRegex", "raises"):
            node.args[0] = _either(node.args[0])
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.stmt | list[ast.stmt]:
        if not (isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And)):
            return node
        parts = [self.visit_Assert(ast.copy_location(ast.Assert(part, node.msg), part)) for part in node.test.values]
        return [each for part in parts for each in (part if isinstance(part, list) else [part])]


def _either(kind: ast.expr) -> ast.expr:
    """The judge's exceptions of that name beside Python's own, which end loops where they are raised."""
    if isinstance(kind, ast.Name) and kind.id in ENDS:
        return ast.copy_location(ast.parse(f"{JUDGE}.either({kind.id})", mode="eval").body, kind)
    return kind


class Assertions(ast.NodeTransformer):
    """Takes assertions apart, so that what they compare is known when they fail, and what they find true is weighed."""

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        text = repr(ast.unparse(node))
        return [_like(f"{JUDGE}.at({text})", node), *self._check(node.test, node)]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        """Those of unittest, of its mocks and of numpy and pandas say that they are reached."""
        return [_like(f"{JUDGE}.counted()", node), node] if is_assertion(node.value) else node

    def visit_With(self, node: ast.With) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        return [_like(f"{JUDGE}.counted()", node), node] if expects_error(node) else node

    def _check(self, test: ast.expr, node: ast.Assert) -> list[ast.stmt]:
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = test.left, test.comparators[0]
            texts = [ast.unparse(left), ast.unparse(right), type(test.ops[0]).__name__]
            other = RIGHT
            if isinstance(test.ops[0], ast.Is | ast.IsNot):  # one object of the answer's may have several stand-ins
                other = f"{JUDGE}.same({LEFT}, {RIGHT})"
            compare = ast.Compare(ast.Name(LEFT, ast.Load()), test.ops, [ast.parse(other, mode="eval").body])
            return [
                ast.copy_location(ast.Assign([ast.Name(LEFT, ast.Store())], left), node),
                _like(f"{JUDGE}.half()", node),
                ast.copy_location(ast.Assign([ast.Name(RIGHT, ast.Store())], right), node),
                ast.copy_location(
                    ast.If(compare, [ast.Pass()], [_like(f"raise {JUDGE}.failure({LEFT}, {RIGHT}, {texts!r})", node)]),
                    node,
                ),
            ]
        negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        checked: ast.expr = ast.Call(
            ast.Attribute(ast.Name(JUDGE, ast.Load()), "truth", ast.Load()),
            [test.operand if negated else test],  # type: ignore[attr-defined]
            [],
        )
        if negated:
            checked = ast.UnaryOp(ast.Not(), checked)
        return [ast.copy_location(ast.If(checked, [ast.Pass()], [_like("raise AssertionError", node)]), node)]


def _like(code: str, node: ast.stmt) -> ast.stmt:
    """A statement in the place of another."""
    statement = ast.parse(code).body[0]
    for each in ast.walk(statement):
        ast.copy_location(each, node)
    return statement
