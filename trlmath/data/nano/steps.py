"""How the nano task writes numbers and works out sums, products and powers step by step."""

from __future__ import annotations

from fractions import Fraction


def decimal(value: Fraction | int) -> str:
    """Write a number as the shortest decimal; fractions without one stay fractions (``1/3``)."""
    value = Fraction(value)
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest != 1:
        return str(value)
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs(int(value * 10**places))).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (digits if places == 0 else f"{digits[:-places]}.{digits[-places:]}")


def plus(value: int | Fraction) -> str:
    """Write a number with its sign, as a further term: ``+7``, ``-7``."""
    return f"+{value}" if value >= 0 else str(value)


def operand(value: int) -> str:
    """Put brackets around a negative number that follows an operator."""
    return f"({value})" if value < 0 else str(value)


def spaced(terms: list[int]) -> str:
    """Write a sum of integers with spaces: ``12 - 5 + 7``."""
    return str(terms[0]) + "".join(f" {'-' if t < 0 else '+'} {abs(t)}" for t in terms[1:])


def spaced_x(a: int, b: int) -> str:
    """Write ax+b with spaces: ``-3x + 7``."""
    head = {1: "x", -1: "-x"}.get(a, f"{a}x")
    return f"{head} {'-' if b < 0 else '+'} {abs(b)}"


def add_steps(a: int, b: int) -> str:
    """Work out a+b for integers: one step when a part is below 100, else hundreds first."""
    total = a + b
    if (a >= 0) == (b >= 0) or total == 0:
        big, small = (a, b) if abs(a) >= abs(b) else (b, a)
        if abs(small) < 100 or abs(small) % 100 == 0 or total == 0:
            return f"{a}{plus(b)}={total}"
        hundreds = int(small / 100) * 100
        rest = plus(small - hundreds)
        return f"{a}{plus(b)}={big}{plus(hundreds)}{rest}={big + hundreds}{rest}={total}"
    if total < 0:  # the larger part is negative: turn the difference round
        big, small = max(abs(a), abs(b)), min(abs(a), abs(b))
        return f"{a}{plus(b)}=-({big}-{small})={total}"
    return f"{a}{plus(b)}={max(a, b)}-{-min(a, b)}={total}" if a < 0 else f"{a}{plus(b)}={total}"


def times_steps(a: int, b: int) -> str:
    """Work out a*b for non-negative integers by splitting the second factor at its tens."""
    if b >= 10 and b % 10:
        tens = b - b % 10
        return f"{a}*{b}={a}*{tens}+{a}*{b % 10}={a * tens}+{a * (b % 10)}={a * b}"
    if a >= 10 and a % 10 and b < 10:
        return f"{a}*{b}={(a - a % 10) * b}+{a % 10 * b}={a * b}"
    return f"{a}*{b}={a * b}"


def power_steps(base: int, exponent: int, negative: bool) -> str:
    """Work out base**exponent (of the negated base when `negative`) from the square."""
    shown = f"(-{base})^{exponent}" if negative else f"{base}^{exponent}"
    value = (-base if negative else base) ** exponent
    sign = "-" if negative and exponent % 2 else ""
    middle = "" if exponent == 2 else f"{base**2}*{sign}{base ** (exponent - 2)}="
    return f"{shown}={middle}{value}"
