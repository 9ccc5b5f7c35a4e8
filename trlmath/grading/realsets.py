"""Sets of real numbers: intervals, unions, set-builders and inequalities in one normal form."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from trlmath.grading.exact import TooLarge, Undefined
from trlmath.grading.numeric import value
from trlmath.grading.syntax import ZERO, Node, variables
from trlmath.grading.values import exact, infinite, same

_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!=", "=": "="}
MINUS_INF: Node = ("neg", ("const", "inf"))
PLUS_INF: Node = ("const", "inf")


@dataclass(frozen=True)
class Interval:
    """Endpoints with their expressions and whether they belong; a point when both agree."""

    low: Node
    low_closed: bool
    high: Node
    high_closed: bool


RealSet = tuple[Interval, ...]
EVERYTHING: RealSet = (Interval(MINUS_INF, False, PLUS_INF, False),)


class NotASet(ValueError):
    """The expression denotes no set of real numbers that can be written as intervals."""


def _key(node: Node) -> Any:
    """A number to order endpoints by."""
    sign = infinite(node)
    if sign is not None:
        return sign * float("inf")
    number = exact(node)
    if number is not None:
        return number
    try:
        found = value(node, {}, 40)
    except (KeyError, TooLarge, Undefined, ArithmeticError, TypeError, ValueError) as error:
        raise NotASet(str(error)) from error
    if found.imag != 0:
        raise NotASet("a complex endpoint")
    return Fraction(int(found.real * 10**30), 10**30)


def _compare(left: Node, right: Node) -> int:
    a, b = _key(left), _key(right)
    if same(left, right):
        return 0
    return -1 if a < b else 1


def normal(intervals: list[Interval]) -> RealSet:
    """Sorted, with touching and overlapping pieces merged and empty ones dropped."""
    kept = []
    for piece in intervals:
        order = _compare(piece.low, piece.high)
        if order < 0 or (
            order == 0 and piece.low_closed and piece.high_closed and infinite(piece.low) is None
        ):
            kept.append(piece)
    kept.sort(key=lambda piece: (_key(piece.low), not piece.low_closed))
    merged: list[Interval] = []
    for piece in kept:
        if merged:
            last = merged[-1]
            order = _compare(piece.low, last.high)
            if order < 0 or (order == 0 and (piece.low_closed or last.high_closed)):
                further = _compare(piece.high, last.high)
                high = piece.high if further > 0 else last.high
                closed = last.high_closed if further < 0 else piece.high_closed
                closed = closed or (further == 0 and last.high_closed)
                low_closed = last.low_closed or (piece.low_closed and _compare(piece.low, last.low) == 0)
                merged[-1] = Interval(last.low, low_closed, high, closed)
                continue
        merged.append(piece)
    return tuple(merged)


def intersect(left: RealSet, right: RealSet) -> RealSet:
    """The common part."""
    found = []
    for a in left:
        for b in right:
            low, high = _compare(a.low, b.low), _compare(a.high, b.high)
            low_closed = (
                a.low_closed if low > 0 else b.low_closed if low < 0 else a.low_closed and b.low_closed
            )
            high_closed = (
                a.high_closed if high < 0 else b.high_closed if high > 0 else a.high_closed and b.high_closed
            )
            found.append(
                Interval(
                    a.low if low >= 0 else b.low, low_closed, a.high if high <= 0 else b.high, high_closed
                )
            )
    return normal(found)


def complement(points: RealSet) -> RealSet:
    """Everything outside."""
    left: RealSet = EVERYTHING
    for piece in points:
        below = Interval(MINUS_INF, False, piece.low, not piece.low_closed)
        above = Interval(piece.high, not piece.high_closed, PLUS_INF, False)
        left = intersect(left, normal([below, above]))
    return left


def real_set(node: Node) -> RealSet:
    """The set that `node` denotes.

    Raises:
        NotASet: it denotes none, or not one that can be told.
    """
    kind = node[0]
    if kind == "seq" and len(node) == 4 and node[1] in ("()", "[]", "[)", "(]"):
        low, high = node[2], node[3]
        if variables(low) or variables(high):
            raise NotASet("endpoints with variables")
        closed = node[1][0] == "[", node[1][1] == "]"
        if _compare(low, high) > 0:
            raise NotASet("the ends are the wrong way round")
        return normal(
            [Interval(low, closed[0] and infinite(low) is None, high, closed[1] and infinite(high) is None)]
        )
    if kind == "seq" and node[1] == "{}":
        return normal([Interval(item, True, item, True) for item in node[2:]])
    if kind == "cup":
        return normal([*real_set(node[1]), *real_set(node[2])])
    if kind == "cap":
        return intersect(real_set(node[1]), real_set(node[2]))
    if kind == "minus":
        return intersect(real_set(node[1]), complement(real_set(node[2])))
    if kind == "such":
        found = EVERYTHING
        for condition in node[2:]:
            found = intersect(found, real_set(condition))
        return found
    if kind == "rel":
        return _from_relation(node)
    if kind == "or":
        return normal([piece for part in node[1:] for piece in real_set(part)])
    if kind == "seq" and node[1] == "" and all(part[0] == "rel" for part in node[2:]):
        return _from_conditions(node[2:])
    if kind == "seq" and node[1] == "" and all(interval(part) for part in node[2:]):
        return normal([piece for part in node[2:] for piece in real_set(part)])
    raise NotASet(kind)


def interval(node: Node) -> bool:
    """Is it surely an interval, not a point: half open, or with an infinite end?"""
    if node[0] != "seq" or len(node) != 4:
        return False
    return node[1] in ("[)", "(]") or any(infinite(end) is not None for end in node[2:])


def _from_conditions(parts: tuple[Node, ...]) -> RealSet:
    """Conditions side by side hold together; two rays that share nothing are meant as alternatives."""
    sets = [real_set(part) for part in parts]
    found = EVERYTHING
    for each in sets:
        found = intersect(found, each)
    return found if found else normal([piece for each in sets for piece in each])


def _from_relation(node: Node) -> RealSet:
    parts, signs = node[1], node[2]
    if signs == ("in",):
        if parts[0][0] == "sym":
            return real_set(parts[1])
        raise NotASet("membership of a constant")
    if not any(sign in ("<", "<=", ">", ">=", "!=") for sign in signs):
        raise NotASet("an equation")
    found = EVERYTHING
    for left, sign, right in zip(parts, signs, parts[1:], strict=False):
        if sign not in _FLIP or sign == "=":
            raise NotASet(sign)
        found = intersect(found, _ray(left, sign, right))
    if len({name for part in parts for name in variables(part)}) != 1:
        raise NotASet("more than one variable")
    return found


def _ray(left: Node, sign: str, right: Node) -> RealSet:
    """The solutions of one relation in one variable, when it is linear or |x| against a number."""
    if variables(right) and not variables(left):
        left, sign, right = right, _FLIP[sign], left
    if not variables(left) or variables(right) - variables(left):
        raise NotASet("no variable alone on one side")
    if left[0] == "fn" and left[1] == "abs" and not variables(right):
        inner, below = left[2], ("neg", right)
        if sign in ("<", "<="):
            return intersect(_ray(inner, sign, right), _ray(below, sign, inner))
        if sign in (">", ">="):
            return normal([*_ray(inner, sign, right), *_ray(inner, _FLIP[sign], below)])
        raise NotASet(sign)
    if left[0] != "sym" or variables(right):
        left, sign, right = _solve(left, sign, right)
    if sign == "!=":
        return complement(normal([Interval(right, True, right, True)]))
    if sign in ("<", "<="):
        return normal([Interval(MINUS_INF, False, right, sign == "<=")])
    return normal([Interval(right, sign == ">=", PLUS_INF, False)])


def _solve(left: Node, sign: str, right: Node) -> tuple[Node, str, Node]:
    """A relation linear in its one variable with rational coefficients, solved for it."""
    (name,) = variables(left) if len(variables(left)) == 1 else (None,)
    if name is None or name.endswith("()"):
        raise NotASet("not linear in one variable")
    gap: Node = ("add", left, ("neg", right))
    at = [exact(substitute(gap, name, number)) for number in (0, 1, 2, 7)]
    if any(number is None for number in at):
        raise NotASet("no rational coefficients")
    first, second, third, last = (number or Fraction(0) for number in at)
    slope = second - first
    if slope == 0 or third - second != slope or last - first != 7 * slope:
        raise NotASet("not linear")
    return ("sym", name), sign if slope > 0 else _FLIP[sign], ("num", -first / slope)


def substitute(node: Node, name: str, number: int) -> Node:
    """`node` with the variable `name` replaced by an integer."""
    if node == ("sym", name):
        return ("num", Fraction(number))
    return tuple(substitute(part, name, number) if isinstance(part, tuple) else part for part in node)


def same_set(left: RealSet, right: RealSet) -> bool:
    """Do two normal forms denote one set?"""
    return len(left) == len(right) and all(
        a.low_closed == b.low_closed
        and a.high_closed == b.high_closed
        and bool(same(a.low, b.low))
        and bool(same(a.high, b.high))
        for a, b in zip(left, right, strict=True)
    )


__all__ = ["EVERYTHING", "NotASet", "RealSet", "ZERO", "real_set", "same_set"]
