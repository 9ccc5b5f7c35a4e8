"""Number literals: decimals, repeating decimals, mixed numbers, numbers in another base."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from trlmath.grading.limits import LIMITS
from trlmath.grading.syntax import DIGIT_WORDS, Node, ParseError

_REPEAT = re.compile(
    r"(\d*)\.(\d*)\s*(?:\\(?:overline|bar)\s*(?:\{\s*(\d+)\s*\}|(\d))|\((\d+)\)(?!\s*[\d(])|\\dot\s*\{?(\d)\}?)"
)
_NUMBER = re.compile(r"(?:\d+(?:\.\d+|\.(?!\s*[A-Za-z\d\\]))?|\.\d+)(?:[eE][+-]?\d{1,6}(?![\d.A-Za-z]))?")
_DOTS = re.compile(r"(\d*)\.(\d+)\s*(?:\\ldots|\.\.\.+)")
_MIXED_TEX = re.compile(r"(\d+)\s*\\frac\s*(?:\{\s*(\d+)\s*\}|(\d))\s*(?:\{\s*(\d+)\s*\}|(\d))(?!\d)")
_MIXED_PLAIN = re.compile(r"(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d.])")
_BASE = re.compile(
    r"([0-9][A-Za-z0-9]*(?:\.[0-9A-Za-z]+)?)\s*_\s*(?:\{\s*(?:\\text\s*\{)?\s*\(?\s*(\d+|[a-z]+)\s*\)?\s*\}?\s*\}|(\d+))"
)
_BASE_WORDS = re.compile(
    r"([0-9]+[A-Za-z]*)\s*(?:\\text\s*\{)?\s*(?:\(?base|in base)\s*\}?\s*(\d+|[a-z]+)\}?\)?"
)


def decimal_value(digits: str) -> Fraction:
    """The exact value of a decimal literal of any length."""
    if len(digits) < 4000 and "e" not in digits and "E" not in digits:
        return Fraction(digits + "0" if digits.endswith(".") else digits)
    value = Decimal(digits)
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > LIMITS.digits:
        raise ParseError("an exponent too large to write out")
    return Fraction(value)


def _repeating(match: re.Match[str]) -> Node:
    whole, head = match[1] or "0", match[2]
    cycle = match[3] or match[4] or match[5] or match[6]
    if len(whole) + len(head) + len(cycle) > 400:
        raise ParseError("a repeating decimal too long to read")
    top = int(whole + head + cycle) - int(whole + head)
    return ("num", Fraction(top, (10 ** len(cycle) - 1) * 10 ** len(head)))


def _dotted(match: re.Match[str]) -> Node:
    """0.333..., 0.1666..., 0.121212...: the shortest block that ends it three times, or twice if long."""
    whole, digits = match[1] or "0", match[2]
    for size in range(1, min(len(digits) // 2, 12) + 1):
        cycle = digits[-size:]
        times = 3 if size == 1 else 2
        if len(digits) >= size * times and digits.endswith(cycle * times):
            head = digits
            while head.endswith(cycle):
                head = head[: -len(cycle)]
            top = int(whole + head + cycle) - int(whole + head)
            return ("num", Fraction(top, (10**size - 1) * 10 ** len(head)))
    raise ParseError("a decimal that is cut off")


def _mixed(match: re.Match[str]) -> Node | None:
    whole, top, bottom = [int(g) for g in match.groups() if g is not None]
    if bottom == 0 or (top >= bottom and match.re is _MIXED_TEX):
        return None
    return ("num", whole + Fraction(top, bottom))


def _based(match: re.Match[str]) -> Node | None:
    word = match[2] or match[3] if match.re is _BASE else match[2]
    base = int(word) if word.isdigit() and len(word) < 4 else DIGIT_WORDS.get(word)
    return ("base", match[1].upper(), base) if base and 2 <= base <= 36 else None


_FORMS = (
    (_REPEAT, _repeating),
    (_DOTS, _dotted),
    (_MIXED_TEX, _mixed),
    (_MIXED_PLAIN, _mixed),
    (_BASE, _based),
    (_BASE_WORDS, _based),
)


def number_at(text: str, at: int) -> tuple[Node, int]:
    """The number literal at `at` and the index behind it.

    Raises:
        ParseError: no number stands there, or one too long to read.
    """
    for pattern, build in _FORMS:
        match = pattern.match(text, at)
        if match:
            node = build(match)
            if node is not None:
                return node, match.end()
    match = _NUMBER.match(text, at)
    if not match or len(match.group()) > LIMITS.digits:
        raise ParseError("not a number, or too long")
    return ("num", decimal_value(match.group())), match.end()
