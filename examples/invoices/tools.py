"""What the harness may call. It runs outside of the sandbox, in the process that trains."""

import ast
import operator
import re

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
EXPRESSION = re.compile(r"[\d(][\d\s()+*×-]*[\d)]")
LONGEST = 400


def calculate(text: str) -> int:
    """The value of the longest expression in a text: whole numbers, `+`, `-`, `*` and parentheses, as in `3 * (4 + 5)`."""
    found = max(EXPRESSION.findall(text[-LONGEST:]), key=len, default="")

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(left, op, right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
        raise SyntaxError

    try:
        return value(ast.parse(found.replace("×", "*"), mode="eval").body)
    except SyntaxError:
        raise ValueError(f"'{text[:60]}' holds no expression of whole numbers") from None
