"""Whole-number expressions of the assembler."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from pequin.errors import InputError

_MAX_BITS = 128

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}

_UNARY: dict[type[ast.unaryop], Callable[[int], int]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Return the value of an expression of numbers, names, + - * / % << >> & | ^ ~ and brackets.

    Division rounds down.

    Raises
    ------
    InputError
        It is not such an expression, or a name is unknown.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise InputError(f"{text!r} is not an expression") from None
    try:
        value = _value(tree.body, names)
    except ZeroDivisionError:
        raise InputError(f"{text!r} divides by zero") from None
    except RecursionError:
        raise InputError("an expression is nested too deeply") from None
    return value


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return _bounded(node.value)
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise InputError(f"{node.id!r} is not defined")
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_value(node.operand, names))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, names), _value(node.right, names)
        shift = isinstance(node.op, ast.LShift | ast.RShift)
        if shift and not 0 <= right < _MAX_BITS:
            raise InputError(f"a shift by {right} is out of range")
        return _bounded(_BINARY[type(node.op)](left, right))
    raise InputError(f"{ast.unparse(node)!r} is not a whole number")


def _bounded(value: int) -> int:
    if abs(value) >> _MAX_BITS:
        raise InputError(f"a value has more than {_MAX_BITS} bits")
    return value
