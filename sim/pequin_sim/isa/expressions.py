"""Whole-number expressions of the assembler."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from pequin.errors import InputError

_MAX_BITS = 128
_MAX_DEPTH = 100

_TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F_]+|0[bB][01_]+|[0-9][0-9_]*|[A-Za-z_]\w*|<<|>>|\S)", re.A)

_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.floordiv, "%": operator.mod},
)
"""Operators, those that bind least first."""

_UNARY: dict[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
}


def evaluate(text: str, names: Mapping[str, int]) -> int:
    """Return the value of an expression of numbers, names, + - * / % << >> & | ^ ~ and brackets.

    Division rounds down. Precedence is that of C.

    Raises
    ------
    InputError
        It is not such an expression, or a name is unknown.
    """
    return _Parser(text, names).whole()


class _Parser:
    """Reads an expression from left to right."""

    def __init__(self, text: str, names: Mapping[str, int]) -> None:
        self._text, self._names = text, names
        self._tokens = _TOKEN.findall(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> int:
        value = self._binary(0)
        if self._at < len(self._tokens):
            raise self._wrong()
        return value

    def _wrong(self) -> InputError:
        return InputError(f"{self._text.strip()!r} is not an expression")

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _binary(self, level: int) -> int:
        """Read operands that are joined by operators of this level or above."""
        if level == len(_LEVELS):
            return self._operand()
        value = self._binary(level + 1)
        while self._peek() in _LEVELS[level]:
            symbol = self._next()
            value = self._apply(symbol, _LEVELS[level][symbol], value, self._binary(level + 1))
        return value

    def _apply(
        self, symbol: str, function: Callable[[int, int], int], left: int, right: int
    ) -> int:
        if symbol in ("<<", ">>") and not 0 <= right < _MAX_BITS:
            raise InputError(f"a shift by {right} is out of range")
        if symbol in "/%" and right == 0:
            raise InputError(f"{self._text.strip()!r} divides by zero")
        return _bounded(function(left, right))

    def _operand(self) -> int:
        token = self._next()
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InputError("an expression is nested too deeply")
        if token in _UNARY:
            value = _UNARY[token](self._operand())
        elif token == "(":
            value = self._binary(0)
            if self._next() != ")":
                raise self._wrong()
        elif token[:1].isdecimal():
            value = self._number(token)
        elif re.match(r"[A-Za-z_]", token):
            if token not in self._names:
                raise InputError(f"{token!r} is not defined")
            value = self._names[token]
        else:
            raise self._wrong()
        self._depth -= 1
        return value

    def _number(self, token: str) -> int:
        try:
            return _bounded(int(token, 0 if token[1:2] in "xXbB" and token[1:] else 10))
        except ValueError:
            raise self._wrong() from None


def _bounded(value: int) -> int:
    if abs(value) >> _MAX_BITS:
        raise InputError(f"a value has more than {_MAX_BITS} bits")
    return value
