"""High-precision complex value of an expression, with its variables set to given numbers."""

from __future__ import annotations

import hashlib
import threading
from fractions import Fraction
from typing import Any

import mpmath

from trlmath.grading.exact import TooLarge, Undefined, based_value
from trlmath.grading.syntax import TRIGONOMETRIC, Node


class NoNumber(ValueError):
    """A list, a matrix or words stand where a number should."""


MAX_EXPONENT = 40_000_000
"""Values beyond 2 to this power are not computed."""

_local = threading.local()


def context(digits: int) -> Any:
    """This thread's own mpmath context with `digits` decimal digits (the shared one is not thread-safe)."""
    held: dict[int, Any] = _local.__dict__.setdefault("held", {})
    if digits not in held:
        held[digits] = mpmath.MPContext()
        held[digits].dps = digits
    return held[digits]


def value(node: Node, point: dict[str, Any], digits: int) -> Any:
    """The complex value of `node` at `point` (variable -> number of the context's own type).

    Raises:
        Undefined: no value there (division by zero, an infinity).
        TooLarge: beyond the limits.
        KeyError: a kind of expression that has no number (a text, a list).
    """
    return _Evaluator(context(digits), point).of(node)


class _Evaluator:
    def __init__(self, mp: Any, point: dict[str, Any]) -> None:
        self.mp = mp
        self.point = point
        self.angle = False  # inside a trigonometric function, where 15° is pi/12

    def of(self, node: Node) -> Any:
        rule = self.rules.get(node[0])
        if rule is None:
            raise NoNumber(node[0])
        result = rule(self, node)
        if isinstance(result, (self.mp.mpf, self.mp.mpc)):
            self.check(result)
        return result

    def check(self, result: Any) -> None:
        parts = (result.real, result.imag)
        for part in parts:
            if not self.mp.isfinite(part):
                raise Undefined("not a finite number")
            exponent = part.man_exp[1] + part.man_exp[0].bit_length() if part else 0
            if abs(exponent) > MAX_EXPONENT:
                raise TooLarge("a number with too many digits")

    def num(self, node: Node) -> Any:
        number: Fraction = node[1]
        return self.mp.mpf(number.numerator) / number.denominator

    def const(self, node: Node) -> Any:
        if node[1] == "inf":
            raise Undefined("infinity is no number")
        return {"pi": self.mp.pi, "e": self.mp.e}[node[1]] * 1 if node[1] != "i" else self.mp.mpc(0, 1)

    def sym(self, node: Node) -> Any:
        return self.point[node[1]]

    def add(self, node: Node) -> Any:
        total = self.of(node[1])
        for part in node[2:]:
            total += self.of(part)
        return total

    def mul(self, node: Node) -> Any:
        total = self.of(node[1])
        for part in node[2:]:
            total *= self.of(part)
        return total

    def neg(self, node: Node) -> Any:
        return -self.of(node[1])

    def div(self, node: Node) -> Any:
        bottom = self.of(node[2])
        if bottom == 0:
            raise Undefined("division by zero")
        return self.of(node[1]) / bottom

    def pow(self, node: Node) -> Any:
        base, exponent = self.of(node[1]), self.of(node[2])
        return self.power(base, exponent)

    def power(self, base: Any, exponent: Any) -> Any:
        if base == 0:
            if exponent.real <= 0:
                raise Undefined("a power of zero")
            return base
        scale = abs(self.mp.log(abs(base))) + 4
        if abs(exponent) * scale > MAX_EXPONENT:
            raise TooLarge("a power with too many digits")
        return base**exponent

    def fact(self, node: Node) -> Any:
        number = self.of(node[1])
        if number.imag == 0 and number.real < 0 and number.real == self.mp.floor(number.real):
            raise Undefined("the factorial of a negative number")
        if abs(number) > 1_000_000:
            raise TooLarge("a factorial with too many digits")
        return self.mp.gamma(number + 1)

    def deg(self, node: Node) -> Any:
        return self.of(node[1]) * (self.mp.pi / 180 if self.angle else 1)

    def pct(self, node: Node) -> Any:
        return self.of(node[1]) / 100

    def unit(self, node: Node) -> Any:
        return self.of(node[1])

    def base(self, node: Node) -> Any:
        number = based_value(node[1], node[2])
        return self.mp.mpf(number.numerator) / number.denominator

    def ratio(self, node: Node) -> Any:
        if len(node) != 3:
            raise Undefined("a ratio of several numbers is no number")
        return self.div(("div", node[1], node[2]))

    def app(self, node: Node) -> Any:
        """An unknown function: a fixed arbitrary smooth-looking number of its arguments."""
        key = [node[1]]
        for part in node[2:]:
            key.append(self.mp.nstr(self.of(part), max(8, self.mp.dps - 12)))
        seed = hashlib.sha256("|".join(key).encode()).digest()
        return self.mp.mpf(int.from_bytes(seed[:8], "big")) / 2**62 + self.mp.mpf(1) / 7

    def fn(self, node: Node) -> Any:
        name, mp = node[1], self.mp
        if name == "det":
            return self.determinant(node[2])
        outer, self.angle = self.angle, name in TRIGONOMETRIC
        try:
            arguments = [self.of(part) for part in node[2:]]
        finally:
            self.angle = outer
        first = arguments[0]
        if name == "sqrt":
            return mp.sqrt(first)
        if name in ("root", "cbrt"):
            index = arguments[1] if name == "root" else mp.mpf(3)
            odd = index.imag == 0 and index.real == mp.floor(index.real) and int(index.real) % 2 == 1
            if first == 0:
                return first
            if odd and first.imag == 0 and first.real < 0:
                return -self.power(-first, 1 / index)
            return self.power(first, 1 / index)
        if name in ("ln", "log", "logb"):
            bases = {"ln": mp.e, "log": mp.mpf(10)}
            base = arguments[1] if name == "logb" else bases[name]
            if first == 0 or base in (0, 1):
                raise Undefined("the logarithm of zero")
            return mp.log(first) / mp.log(base)
        if name == "exp":
            return self.power(mp.e * 1, first)
        if name in ("floor", "ceil"):
            return mp.floor(first) if name == "floor" else mp.ceil(first)
        if name in ("max", "min"):
            reals = [a.real for a in arguments]
            return max(reals) if name == "max" else min(reals)
        if name == "binom":
            if abs(first) > 100_000 or abs(arguments[1]) > 100_000:
                raise TooLarge("a binomial with too many digits")
            return mp.binomial(first, arguments[1])
        simple = {"abs": abs, "arg": mp.arg, "conj": mp.conj, "Re": mp.re, "Im": mp.im, "sgn": mp.sign}
        if name in simple:
            return simple[name](first)
        if name in ("gcd", "lcm"):
            raise KeyError(name)
        if name == "perm":
            return mp.gamma(first + 1) / mp.gamma(first - arguments[1] + 1)
        if name == "cis":
            return mp.expj(first)
        if abs(first) > 1e12:
            raise TooLarge(f"{name} of a large number")
        if name in ("cot", "csc") and mp.sin(first) == 0:
            raise Undefined(f"{name} has a pole there")
        return getattr(mp, name)(first)

    def determinant(self, node: Node) -> Any:
        rows = [[self.of(entry) for entry in row] for row in node[1]]
        if len(rows) != len(rows[0]) or len(rows) > 6:
            raise Undefined("a determinant of no small square matrix")
        return self.mp.det(self.mp.matrix(rows))

    rules = {
        "num": num, "const": const, "sym": sym, "add": add, "mul": mul, "neg": neg, "div": div, "pow": pow,
        "fact": fact, "deg": deg, "pct": pct, "unit": unit, "base": base, "ratio": ratio,
        "app": app, "fn": fn,
    }  # fmt: skip
