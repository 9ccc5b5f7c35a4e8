"""Are two expressions the same number, or the same function of their variables?

Exact where both are rational. Otherwise both are computed to 40 digits (and again to 100 where that decides),
at 14 points when there are variables: two different closed forms do not agree to 28 digits at every point, so
the test errs on no real answer, and it is relative, so that tiny numbers are never taken for equal.
"""

from __future__ import annotations

import random
from fractions import Fraction
from functools import lru_cache
from typing import Any

from trlmath.grading.exact import CHEAP_BITS, TooLarge, Undefined, rational
from trlmath.grading.numeric import NoNumber, context, value
from trlmath.grading.syntax import Node, variables

DIGITS = 40
MORE_DIGITS = 100
POINTS = 14
NEEDED = 8
"""So many points must be defined on both sides before equality of functions is believed."""


def infinite(node: Node) -> int | None:
    """+1 or -1 for an infinity standing alone, else None."""
    if node == ("const", "inf"):
        return 1
    if node[0] == "neg":
        inner = infinite(node[1])
        return None if inner is None else -inner
    return None


def exact(node: Node) -> Fraction | None:
    """The rational value, None when irrational, unknown or beyond the cheap limit."""
    try:
        return rational(node, CHEAP_BITS)
    except (TooLarge, Undefined):
        return None


@lru_cache(maxsize=16384)
def same(left: Node, right: Node) -> bool | None:
    """True or False; None when neither side can be computed within the limits."""
    if left == right:
        return True
    signs = infinite(left), infinite(right)
    if signs != (None, None):
        return signs[0] == signs[1]
    try:
        a, b = rational(left), rational(right)
        if a is not None and b is not None:
            return a == b
    except Undefined:
        return False
    except TooLarge:
        pass
    names = sorted(variables(left) | variables(right))
    free = [name for name in names if not name.endswith("()")]
    try:
        if not names:
            return _same_number(left, right)
        return _same_function(left, right, free)
    except NoNumber:
        return False
    except (KeyError, TypeError, ValueError, ArithmeticError, NotImplementedError, RecursionError):
        return None


def _close(a: Any, b: Any, digits: int) -> bool:
    scale = max(abs(a), abs(b))
    return scale == 0 or abs(a - b) <= scale * context(digits).mpf(10) ** (-digits + 12)


def _compute(node: Node, point: dict[str, Any], digits: int) -> Any:
    """The value, or None where it is undefined or beyond the limits."""
    try:
        return value(node, point, digits)
    except (Undefined, TooLarge, ZeroDivisionError, OverflowError):
        return None


def _same_number(left: Node, right: Node) -> bool | None:
    a, b = _compute(left, {}, DIGITS), _compute(right, {}, DIGITS)
    if a is None and b is None:
        return None
    if a is None or b is None:
        return False
    if not _close(a, b, DIGITS) and _close(a, b, 20):
        a, b = _compute(left, {}, MORE_DIGITS), _compute(right, {}, MORE_DIGITS)
        return a is not None and b is not None and _close(a, b, MORE_DIGITS)
    if _close(a, b, DIGITS):
        a, b = _compute(left, {}, MORE_DIGITS), _compute(right, {}, MORE_DIGITS)
        return a is not None and b is not None and _close(a, b, MORE_DIGITS)
    # One side cancels to (almost) nothing, or digits were lost: look again with more of them.
    more = [_compute(left, {}, MORE_DIGITS), _compute(right, {}, MORE_DIGITS)]
    if more[0] is None or more[1] is None:
        return False
    if _close(more[0], more[1], MORE_DIGITS):
        return True
    for old, new, other in ((a, more[0], more[1]), (b, more[1], more[0])):
        noise = abs(new) < context(DIGITS).mpf(10) ** -60 and not _close(old, new, 20)
        if other == 0 and noise:
            return True
    return False


def _same_function(left: Node, right: Node, names: list[str]) -> bool | None:
    believed = 0
    real = not _mentions_i(left) and not _mentions_i(right)
    for point in points(tuple(names), DIGITS):
        a, b = _compute(left, point, DIGITS), _compute(right, point, DIGITS)
        if a is None or b is None:
            if (
                (a is None) != (b is None)
                and believed == 0
                and not _ever(left if a is None else right, names)
            ):
                return False
            continue
        if _close(a, b, DIGITS):
            believed += 1
            continue
        if real and (a.imag != 0 or b.imag != 0):
            continue  # roots and logarithms of negative numbers are a matter of branch
        more = points(tuple(names), MORE_DIGITS)[points(tuple(names), DIGITS).index(point)]
        a, b = _compute(left, more, MORE_DIGITS), _compute(right, more, MORE_DIGITS)
        if a is None or b is None or not _close(a, b, MORE_DIGITS):
            return False
        believed += 1
    return True if believed >= NEEDED else None


def _mentions_i(node: Node) -> bool:
    return node == ("const", "i") or any(isinstance(part, tuple) and _mentions_i(part) for part in node)


def _ever(node: Node, names: list[str]) -> bool:
    """Is the expression defined at any of the points?"""
    return any(_compute(node, point, DIGITS) is not None for point in points(tuple(names), DIGITS))


@lru_cache(maxsize=512)
def points(names: tuple[str, ...], digits: int) -> list[dict[str, Any]]:
    """The fixed test points: positive ones first, then of both signs; the same rationals at any precision."""
    mp = context(digits)
    random_ = random.Random("trlmath" + ",".join(names))
    found = []
    for index in range(POINTS):
        low, high = (0.2, 3.0) if index < 6 else (2.0, 12.0) if index < 9 else (-4.0, 4.0)
        point = {}
        for name in names:
            number = Fraction(round(random_.uniform(low, high) * 9973), 9973)
            point[name] = mp.mpf(number.numerator) / number.denominator
        found.append(point)
    return found


def proportional(left: Node, right: Node, positive: bool = False) -> bool | None:
    """Is `left` a constant, non-zero (or positive) multiple of `right`, as functions?"""
    names = sorted(variables(left) | variables(right))
    free = tuple(name for name in names if not name.endswith("()"))
    if not names:
        return None
    factor = None
    believed = 0
    try:
        for point in points(free, DIGITS):
            a, b = _compute(left, point, DIGITS), _compute(right, point, DIGITS)
            if a is None or b is None or a == 0 or b == 0:
                continue
            if factor is None:
                factor = a / b
            elif not _close(a, factor * b, DIGITS):
                return False
            believed += 1
    except (KeyError, TypeError, ValueError, ArithmeticError, NotImplementedError):
        return None
    if factor is None or believed < NEEDED:
        return None
    return factor.imag == 0 and factor.real > 0 if positive else True
