"""Where a module can be changed in one place, and how: comparisons, operators, numbers, booleans, `and`, `or` and `not`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
}
WRITTEN = {type_: re.compile(pattern) for type_, pattern in ((ast.Is, r"\bis\b"), (ast.IsNot, r"\bis\s+not\b"))}
WRITTEN |= {ast.In: re.compile(r"\bin\b"), ast.NotIn: re.compile(r"\bnot\s+in\b")}
WRITTEN |= {ast.Lt: re.compile("<"), ast.LtE: re.compile("<="), ast.Gt: re.compile(">"), ast.GtE: re.compile(">=")}
WRITTEN |= {ast.Eq: re.compile("=="), ast.NotEq: re.compile("!=")}


@dataclass(frozen=True)
class Mutant:
    """One change of a file: the text between two offsets is replaced. It concerns the lines `first` to `last`, those of the
    statement it stands in; `always` says that importing the module runs it."""

    file: str
    start: int
    end: int
    text: str
    line: int
    first: int
    last: int
    always: bool

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """The line before and after, stripped."""
        begin, stop = source.rfind("\n", 0, self.start) + 1, source.find("\n", self.end)
        changed = source[begin : self.start] + self.text + source[self.end : stop]
        return " ".join(source[begin:stop].split()), " ".join(changed.split())


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, source: str) -> None:
        self.file, self.source, self.found = file, source, list[Mutant]()
        lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._lines = lines
        self._statement, self._depth = (1, 1), 0

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def _add(self, start: int, end: int, text: str) -> None:
        line = self.source.count("\n", 0, start) + 1
        first, last = self._statement
        self.found.append(Mutant(self.file, start, end, text, line, first, last, self._depth == 0))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            if _left_out(node):
                return
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body and isinstance(body, list) else node.end_lineno or node.lineno
            outer, self._statement = self._statement, (node.lineno, max(last, node.lineno))
            super().visit(node)
            self._statement = outer
        else:
            super().visit(node)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._depth += 1
        for each in node.body:
            self.visit(each)
        self._depth -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = _function  # decorators and annotations are left out

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.body)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for each in node.body:
            self.visit(each)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """What a message says is left out."""

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of `zip`: it only guards against mistakes of ours
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            start, end = self._span(left)[1], self._span(right)[0]
            if match := WRITTEN[type(operator)].search(self.source, start, end):
                for text in COMPARISONS[type(operator)]:
                    self._add(*match.span(), text)
            left = right

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        text = any(
            isinstance(side, ast.Constant | ast.JoinedStr) and not _number(side) for side in (node.left, node.right)
        )
        if type(node.op) in OPERATORS and not text:
            written, other = OPERATORS[type(node.op)]
            start = self.source.index(written, self._span(node.left)[1], self._span(node.right)[0])
            self._add(start, start + len(written), other)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if type(node.op) in OPERATORS:
            written, other = OPERATORS[type(node.op)]
            start = self.source.index(f"{written}=", self._span(node.target)[1])
            self._add(start, start + len(written), other)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.generic_visit(node)
        written, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            match = re.compile(rf"\b{written}\b").search(self.source, self._span(left)[1], self._span(right)[0])
            assert match is not None
            self._add(*match.span(), other)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.generic_visit(node)
        start, end = self._span(node)
        if isinstance(node.op, ast.Not | ast.USub) and not isinstance(node.operand, ast.Constant):
            inner = slice(*self._span(node.operand))
            self._add(start, end, f"({self.source[inner]})")

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end = self._span(node)
        if isinstance(node.value, bool):
            self._add(start, end, str(not node.value))
        elif _number(node):
            self._add(start, end, repr(node.value + 1))


def _number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _left_out(node: ast.stmt) -> bool:
    """Docstrings, imports, assertions, and what only a type checker reads."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Assert):
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return True
    return _is_text(node)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def sites(package: Path, rooms: tuple[str, ...]) -> Iterator[Mutant]:
    """Every change of the files of some rooms, in order."""
    for room in rooms:
        found = sorted(package.glob(f"{room}/**/*.py")) or [package / f"{room}.py"]
        for path in found:
            finder = _Finder(str(path.relative_to(package)), path.read_text())
            finder.visit(ast.parse(finder.source))
            yield from finder.found


REACHED = "__reached__"
"""What the marks call, a builtin while tests are traced."""


class _Marker(ast.NodeTransformer):
    """Puts a call before every statement of the functions of a module."""

    def __init__(self, file: str) -> None:
        self.file, self._inside = file, False

    def generic_visit(self, node: ast.AST) -> ast.AST:
        outer, self._inside = self._inside, self._inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            each = getattr(node, name, None)
            if self._inside and isinstance(each, list) and not isinstance(node, ast.ClassDef):
                setattr(node, name, [part for statement in each for part in self._marked(statement)])
        self._inside = outer
        return node

    def _marked(self, statement: ast.stmt) -> list[ast.stmt]:
        if _is_text(statement):
            return [statement]
        mark = ast.parse(f"{REACHED}(({self.file!r}, {statement.lineno}))").body[0]
        for each in ast.walk(mark):
            ast.copy_location(each, statement)
        return [mark, statement]


def with_marks(source: str, file: str) -> ast.Module:
    """The module with marks; in a process where nothing listens they do nothing."""
    tree = _Marker(file).visit(ast.parse(source))
    listens = ast.parse(f"{REACHED} = getattr(__import__('builtins'), {REACHED!r}, id)").body[0]
    place = next((n for n, each in enumerate(tree.body) if not _first(each)), len(tree.body))
    tree.body.insert(place, listens)
    return ast.fix_missing_locations(tree)


def _first(node: ast.stmt) -> bool:
    """What must come first in a module: its docstring and imports from the future."""
    return _is_text(node) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")
