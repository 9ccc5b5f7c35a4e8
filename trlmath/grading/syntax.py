"""The parser's vocabulary: what a command, a word or a unit means.

An expression is a nested tuple, its kind first:

    ("num", Fraction)  ("sym", name)  ("const", "pi" | "e" | "i" | "inf")  ("text", words)
    ("add", a, b, ...)  ("mul", a, b, ...)  ("neg", a)  ("div", a, b)  ("pow", a, b)  ("fact", a)
    ("pm", a, b)  ("mp", a, b)             a ± b, a ∓ b; a may be zero
    ("fn", name, args...)  ("app", name, args...)   a known function; an unknown f(x)
    ("unit", a, unit)  ("pct", a)  ("deg", a)  ("base", digits, base)  ("ratio", a, b, ...)
    ("seq", brackets, items...)            brackets: "()", "[]", "(]", "[)", "{}", "" (bare list)
    ("matrix", (row, row, ...))
    ("rel", (a, b, c), ("<", "<="))        a < b <= c; also "=", "!=", "in", "~"
    ("or", a, b, ...)  ("cup", a, b, ...)  ("cap", a, b, ...)  ("minus", a, b)  ("such", a, b)
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

Node = tuple[Any, ...]

ZERO: Node = ("num", Fraction(0))
ONE: Node = ("num", Fraction(1))


class ParseError(ValueError):
    """The text is not an expression this grammar knows."""


FUNCTIONS = {
    "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "ln", "log",
    "exp",
    "lg", "sqrt", "cbrt", "abs", "floor", "ceil", "gcd", "lcm", "max", "min", "arg", "det", "Re", "Im",
    "arcsin",
    "arccos", "arctan", "binom", "sgn", "ceiling", "cis",
}  # fmt: skip
"""Names that take an argument, as a command (``\\sin``) or as a bare word (``sin``)."""

ARITY = {"binom": (2, 2), "gcd": (1, 50), "lcm": (1, 50), "max": (1, 50), "min": (1, 50)}
"""How many arguments, at least and at most, where it is not one."""

SAME_FUNCTION = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "lg": "log", "ceiling": "ceil"}

TRIGONOMETRIC = {"cis", "sin", "cos", "tan", "cot", "sec", "csc"}

WORDS = {"pi": ("const", "pi"), "infinity": ("const", "inf"), "inf": ("const", "inf"), "oo": ("const", "inf")}

GREEK = {
    "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta", "vartheta", "iota",
    "kappa",
    "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma",
    "Delta",
    "Theta", "Lambda", "Xi", "Pi", "Sigma", "Phi", "Psi", "Omega", "ell", "hbar",
}  # fmt: skip

RELATIONS = {
    "<=": "<=", ">=": ">=", "=<": "<=", "!=": "!=", "=": "=", "<": "<", ">": ">", ":=": "=", "==": "=",
    r"\le": "<=", r"\ge": ">=", r"\ne": "!=", r"\in": "in", r"\approx": "~", r"\equiv": "=", r"\to": "to",
    r"\subset": "sub", r"\perp": "perp", r"\parallel": "par", r"\pmod": "mod", "=>": "to", r"\propto": "prop",
}  # fmt: skip

_UNIT_NAMES = {
    "m": "m meter meters metre metres", "cm": "cm centimeter centimeters centimetre centimetres cms",
    "mm": "mm millimeter millimeters", "km": "km kilometer kilometers kilometre kilometres kms",
    "in": "in inch inches", "ft": "ft foot feet", "yd": "yd yard yards yds", "mi": "mi mile miles",
    "s": "s sec secs second seconds", "min": "min mins minute minutes", "h": "h hr hrs hour hours",
    "day": "day days", "week": "week weeks", "month": "month months", "year": "year years yr yrs",
    "g": "g gram grams", "kg": "kg kilogram kilograms kgs", "mg": "mg milligram milligrams",
    "lb": "lb lbs pound pounds", "oz": "oz ounce ounces", "ton": "ton tons",
    "L": "L liter liters litre litres", "mL": "mL ml milliliter milliliters", "gal": "gal gallon gallons",
    "qt": "quart quarts qt", "cup": "cup cups", "mph": "mph", "usd": "dollar dollars usd buck bucks",
    "cent": "cent cents", "deg": "degree degrees deg", "rad": "radian radians rad",
    "pct": "percent pct percents",
    "N": "newton newtons", "J": "joule joules", "W": "watt watts", "hz": "hz hertz", "eur": "euro euros eur",
    "gbp": "pence gbp", "yuan": "yuan rmb", "rupee": "rupee rupees rs", "acre": "acre acres",
}  # fmt: skip
UNITS: dict[str, str] = {name: key for key, names in _UNIT_NAMES.items() for name in names.split()}
"""A unit's spelling -> its key; two different keys never agree."""

_NOT_BARE = {"min", "sec", "deg", "in", "rad"}
BARE_UNITS = {"unit", "units"} | {name for name in UNITS if len(name) > 1 and name not in _NOT_BARE}
"""Units recognised right behind a number without any ``\\text``."""

LETTER_UNITS = {"m": "m", "s": "s", "g": "g", "h": "h", "L": "L"}
"""Single letters that are units only behind a number and a space, or with a square or cube."""

DIGIT_WORDS = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip
"""Bases written as words: ``204_{\\text{five}}``."""


def variables(node: Node) -> frozenset[str]:
    """Names of the free variables and unknown functions in an expression."""
    found: set[str] = set()
    stack: list[Any] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, tuple):
            if len(item) > 1 and item[0] == "sym":
                found.add(item[1])
            elif len(item) > 1 and item[0] == "app":
                found.add(f"{item[1]}()")
                stack.extend(item[2:])
            else:
                stack.extend(item)
    return frozenset(found)
