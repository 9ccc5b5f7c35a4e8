"""Exact rational value of an expression, within limits on its size."""

from __future__ import annotations

import math
from fractions import Fraction

from trlmath.grading.syntax import Node


class TooLarge(ArithmeticError):
    """A number would grow beyond the limit of bits."""


class Undefined(ArithmeticError):
    """Division by zero, the logarithm of zero, and the like."""


CHEAP_BITS = 30_000


def rational(node: Node, bits: int = CHEAP_BITS) -> Fraction | None:
    """The exact value of `node` when it is a rational built from rationals, else None.

    Args:
        node: an expression.
        bits: no numerator or denominator may grow beyond this.

    Raises:
        TooLarge: a number beyond `bits`.
        Undefined: division by zero.
    """
    kind = node[0]
    if kind == "num":
        return node[1]
    if kind == "neg":
        value = rational(node[1], bits)
        return None if value is None else -value
    if kind in ("add", "mul"):
        total = Fraction(0 if kind == "add" else 1)
        for part in node[1:]:
            value = rational(part, bits)
            if value is None:
                return None
            total = total + value if kind == "add" else total * value
            _check(total, bits)
        return total
    if kind == "div":
        top, bottom = rational(node[1], bits), rational(node[2], bits)
        if bottom == 0:
            raise Undefined("division by zero")
        return None if top is None or bottom is None else _check(top / bottom, bits)
    if kind == "pow":
        return _power(node, bits)
    if kind == "fact":
        value = rational(node[1], bits)
        return None if value is None else Fraction(_factorial(value, bits))
    if kind == "base":
        return based_value(node[1], node[2])
    if kind == "fn":
        return _function(node, bits)
    if kind in ("unit", "deg"):
        return rational(node[1], bits)
    return None


def _check(value: Fraction, bits: int) -> Fraction:
    if value.numerator.bit_length() > bits or value.denominator.bit_length() > bits:
        raise TooLarge("a number with too many digits")
    return value


def _power(node: Node, bits: int) -> Fraction | None:
    base, exponent = rational(node[1], bits), rational(node[2], bits)
    if base is None or exponent is None:
        return None
    if base == 0 and exponent <= 0:
        raise Undefined("a power of zero")
    if exponent.denominator != 1:
        return _root(base, exponent, bits)
    if base in (0, 1):
        return base
    if base == -1:
        return Fraction(1 if exponent.numerator % 2 == 0 else -1)
    size = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if max(size, 1) * abs(exponent.numerator) > bits:
        raise TooLarge("a power with too many digits")
    return base**exponent.numerator


def _root(base: Fraction, exponent: Fraction, bits: int) -> Fraction | None:
    """A rational power that happens to be rational: 8^{1/3}; None otherwise."""
    if base < 0 and exponent.denominator % 2 and exponent.denominator > 1:  # the real root: (-8)^{1/3} = -2
        positive = _root(-base, exponent, bits)
        return None if positive is None else positive * (-1) ** (exponent.numerator % 2)
    if base < 0 or exponent.denominator > 64 or abs(exponent.numerator) > 64:
        return None
    top, bottom = (
        integer_root(base.numerator, exponent.denominator),
        integer_root(base.denominator, exponent.denominator),
    )
    if top is None or bottom is None:
        return None
    return _power(("pow", ("num", Fraction(top, bottom)), ("num", Fraction(exponent.numerator))), bits)


def integer_root(value: int, index: int) -> int | None:
    """The exact `index`-th root of a non-negative integer, or None when there is none."""
    if value < 2:
        return value
    if index == 2:
        root = math.isqrt(value)
    else:
        low, high = 1, 1 << (value.bit_length() // index + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**index <= value else (low, middle - 1)
        root = low
    return root if root**index == value else None


def _factorial(value: Fraction, bits: int) -> int:
    if value.denominator != 1 or value < 0:
        raise Undefined("the factorial of no natural number")
    if value > 2 and value.numerator * (value.numerator.bit_length() - 1) > bits:
        raise TooLarge("a factorial with too many digits")
    return math.factorial(value.numerator)


def based_value(digits: str, base: int) -> Fraction:
    """The value of `digits` written in `base` (2 to 36).

    Raises:
        Undefined: a digit that the base does not have.
    """
    whole, _, part = digits.partition(".")
    total = 0
    for char in whole + part:
        digit = int(char, 36)
        if digit >= base:
            raise Undefined(f"{char} is no digit in base {base}")
        total = total * base + digit
    return Fraction(total, base ** len(part))


def _function(node: Node, bits: int) -> Fraction | None:
    name = node[1]
    if name not in (
        "mod",
        "perm",
        "sqrt",
        "root",
        "abs",
        "floor",
        "ceil",
        "max",
        "min",
        "gcd",
        "lcm",
        "binom",
        "det",
        "sgn",
    ):
        return None
    if name == "det":
        return None
    values: list[Fraction] = []
    for part in node[2:]:
        value = rational(part, bits)
        if value is None:
            return None
        values.append(value)
    first = values[0]
    if name == "sqrt":
        return _root(first, Fraction(1, 2), bits)
    if name == "root":
        index = values[1]
        if index.denominator != 1 or index < 2:
            return None
        if first < 0:
            root = _root(-first, 1 / index, bits) if index.numerator % 2 else None
            return None if root is None else -root
        return _root(first, 1 / index, bits)
    if name == "abs":
        return abs(first)
    if name == "sgn":
        return Fraction((first > 0) - (first < 0))
    if name in ("floor", "ceil"):
        return Fraction(math.floor(first) if name == "floor" else math.ceil(first))
    if name in ("max", "min"):
        return max(values) if name == "max" else min(values)
    if any(v.denominator != 1 for v in values):
        return None
    whole = [v.numerator for v in values]
    if name == "mod":
        if whole[1] == 0:
            raise Undefined("modulo zero")
        return Fraction(whole[0] % whole[1])
    if name in ("gcd", "lcm"):
        return Fraction(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))
    if len(whole) != 2 or whole[0] < 0 or whole[1] < 0:
        return None
    if min(whole[1], abs(whole[0] - whole[1])) * max(whole[0].bit_length(), 1) > bits:
        raise TooLarge("a binomial with too many digits")
    return Fraction(math.comb(*whole) if name == "binom" else math.perm(*whole))
