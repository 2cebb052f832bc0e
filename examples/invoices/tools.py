"""What the harness may call. It runs outside of the sandbox, in the process that trains."""

import ast
import operator

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
LONGEST = 200


def calculate(expression: str) -> int:
    """The value of an expression of whole numbers, +, -, * and parentheses, such as `3 * (4 + 5)`."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.BinOp(left, op, right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
        raise ValueError(f"'{expression[:60]}' is not whole numbers, +, -, * and parentheses")

    if len(expression) > LONGEST:
        raise ValueError(f"the expression has {len(expression)} characters; at most {LONGEST} are read")
    try:
        return value(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError:
        raise ValueError(
            f"'{expression[:60]}' is no expression; write numbers, +, -, * and parentheses alone"
        ) from None
