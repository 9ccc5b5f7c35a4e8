"""The nano task: nine families of short mathematics problems, each with a worked trace.

Everything is a pure function of a `random.Random`: `make_item(rng, family, level)` draws one problem.
Traces are compact chains of equations (``34*27=34*20+34*7=680+238=918``), because a model of a million
parameters reads and writes one digit a token. Each family has three levels.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from trlmath.data.nano.steps import (
    add_steps,
    decimal,
    operand,
    plus,
    power_steps,
    spaced,
    spaced_x,
    times_steps,
)

LEVELS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Item:
    """One problem.

    Attributes:
        family, level: where it was drawn from.
        question: the text shown to the model.
        answer: the gold answer: an integer, a reduced fraction ``-3/4`` or a decimal ``2.5``.
        trace: the worked steps, ending in the answer.
        terse: the same without the steps in between (what a hasty solver writes).
        key: the problem without its wording; two items with one key are the same problem.
    """

    family: str
    level: int
    question: str
    answer: str
    trace: str
    terse: str
    key: str


def split_of(key: str) -> str:
    """Return ``eval`` for a tenth of all problems and ``train`` for the rest, by hash of the key.

    The base model was pre-trained on ``train`` problems only, whatever the seed.
    """
    return "eval" if hashlib.blake2b(key.encode(), digest_size=4).digest()[0] % 10 == 0 else "train"


def signed(rng: random.Random, low: int, high: int, negative: float = 0.4) -> int:
    """Draw an integer of absolute value in [low, high], negative with the given probability."""
    value = rng.randint(low, high)
    return -value if rng.random() < negative else value


def ask(rng: random.Random, expression: str) -> str:
    """Put an expression into words, half the time as an order and half the time as a question."""
    template = rng.choice(("Compute {}.", "Evaluate {}.", "What is {}?", "How much is {}?"))
    return template.format(expression)


def sums(rng: random.Random, level: int) -> Item:
    """Sums and differences of two or three integers of two or three digits."""
    high = 99 if level == 1 else 999
    terms = [signed(rng, 10, high) for _ in range(3 if level == 3 else 2)]
    expression = spaced(terms)
    steps, total = [], terms[0]
    for term in terms[1:]:
        steps.append(add_steps(total, term))
        total += term
    compact = expression.replace(" ", "")
    return Item(
        "sums", level, ask(rng, expression), str(total), ", ".join(steps), f"{compact}={total}", compact
    )


def products(rng: random.Random, level: int) -> Item:
    """Products of signed integers; level 3 adds a third number."""
    a, b = rng.randint(11, 99), rng.randint(3, 9) if level == 1 else rng.randint(11, 60)
    sign_a, sign_b = rng.choice((1, 1, -1)), rng.choice((1, 1, -1))
    product = a * b * sign_a * sign_b
    steps = [times_steps(a, b)]
    if product < 0:
        steps.append(f"sign -, {product}")
    elif sign_a < 0:
        steps.append(f"sign +, {product}")
    expression, answer = f"{a * sign_a} * {operand(b * sign_b)}", product
    if level == 3:
        c = signed(rng, 10, 200, 0.5)
        expression += f" {'-' if c < 0 else '+'} {abs(c)}"
        answer += c
        steps.append(add_steps(product, c))
    compact = expression.replace(" ", "")
    return Item(
        "products", level, ask(rng, expression), str(answer), ", ".join(steps), f"{compact}={answer}", compact
    )


def equations(rng: random.Random, level: int) -> Item:
    """Linear equations: ax+b=c with an integer (1) or fractional (2) root; x on both sides (3)."""
    b = signed(rng, 1, 30, 0.5)
    while True:
        a = signed(rng, 2, 9, 0.25)
        c = signed(rng, 1, 9, 0.4) if level == 3 else 0
        if level == 1 or (level == 3 and rng.random() < 0.5):
            d = (a - c) * signed(rng, 1, 15, 0.5) + b
        else:
            d = signed(rng, 1, 40, 0.5)
        root = Fraction(d - b, a - c) if a != c else Fraction(0)
        if root != 0 and abs(a - c) > 1 and (level != 2 or root.denominator > 1):
            break
    right = spaced_x(c, d) if level == 3 else str(d)
    left = spaced_x(a, b)
    steps = []
    if level == 3:
        steps.append(f"{a}x{plus(-c)}x={d}{plus(-b)}")
        steps.append(f"{a - c}x={d - b}")
    else:
        steps.append(f"{a}x={d}{plus(-b)}={d - b}")
    raw = f"{d - b}/{a - c}" if a > c else f"{b - d}/{c - a}"
    steps.append(f"x={raw}" + ("" if raw == str(root) else f"={root}"))
    template = rng.choice(
        ("Solve {} for x.", "Solve the equation {}.", "What is x if {}?", "For which x is {}?")
    )
    compact = f"{left}={right}".replace(" ", "")
    return Item(
        "equations",
        level,
        template.format(f"{left} = {right}"),
        str(root),
        ", ".join(steps),
        f"x={root}",
        compact,
    )


def fractions(rng: random.Random, level: int) -> Item:
    """Sums and differences (1, 2), products and quotients (3) of fractions."""
    high = 6 if level == 1 else 12

    def draw(negative: float) -> Fraction:
        while True:
            den = rng.randint(2, high)
            value = Fraction(signed(rng, 1, high, negative), den)
            if value.denominator > 1:
                return value

    a, b = draw(0.3), draw(0.0)
    if level < 3:
        operator = rng.choice("+-")
        result = a + b if operator == "+" else a - b
        lcm = math.lcm(a.denominator, b.denominator)
        top_a, top_b = int(a * lcm), int(b * lcm)
        raw_top = top_a + top_b if operator == "+" else top_a - top_b
        raw = f"{raw_top}/{lcm}"
        steps = f"{top_a}/{lcm}{operator}{top_b}/{lcm}=" if a.denominator != b.denominator else ""
    else:
        operator = rng.choice("*:")
        result = a * b if operator == "*" else a / b
        c = b if operator == "*" else 1 / b
        raw = f"{a.numerator * c.numerator}/{a.denominator * c.denominator}"
        steps = f"{a}*{c.numerator}/{c.denominator}=" if operator == ":" else ""
    compact = f"{a}{operator}{b}"
    word = "/" if operator == ":" else operator
    expression = f"{a} {word} {b}" if operator != ":" else f"({a}) / ({b})"
    shown = expression.replace(" ", "")
    tail = raw if raw == str(result) else f"{raw}={result}"
    return Item(
        "fractions",
        level,
        ask(rng, expression),
        str(result),
        f"{shown}={steps}{tail}",
        f"{shown}={result}",
        compact,
    )


def percents(rng: random.Random, level: int) -> Item:
    """A percentage of a number (1 easy, 2 any) and a price that rises or falls (3)."""
    percent = rng.randrange(5, 100, 5) if level == 1 else rng.randint(2, 98)
    base = rng.randrange(10, 200, 10) if level == 1 else rng.randint(11, 99)
    if level < 3:
        factor, first = percent, ""
        template = rng.choice(
            ("Find {p}% of {n}.", "Compute {p}% of {n}.", "What is {p}% of {n}?", "How much is {p}% of {n}?")
        )
        key = f"{percent}%{base}"
    else:
        percent = rng.randrange(5, 95, 5)
        rises = rng.random() < 0.5
        factor = 100 + percent if rises else 100 - percent
        first = f"100{plus(percent if rises else -percent)}={factor}, "
        verb = "rises" if rises else "falls"
        template = rng.choice(
            (
                "A price of {n} " + verb + " by {p}%. Find the new price.",
                "A price of {n} " + verb + " by {p}%. What is it now?",
            )
        )
        key = f"{base}{verb}{percent}%"
    product = factor * base
    answer = decimal(Fraction(product, 100))
    one, two = (base, factor) if factor < 100 else (factor, base)
    trace = f"{first}{times_steps(one, two)}, {product}/100={answer}"
    return Item(
        "percents",
        level,
        template.format(p=percent, n=base),
        answer,
        trace,
        f"{factor}/100*{base}={answer}",
        key,
    )


POWERS = [(b, e) for b in range(2, 13) for e in range(2, 6) if b**e < 300]


def powers(rng: random.Random, level: int) -> Item:
    """Powers of signed integers plus a number (1), of two integers (2), of fractions (3)."""
    if level == 3:
        return fraction_powers(rng)
    (a, m), negative = rng.choice(POWERS), rng.random() < 0.4
    base = -a if negative else a
    first, shown = base**m, f"{operand(base)}^{m}"
    steps = [power_steps(a, m, negative)]
    if level == 1:
        other = signed(rng, 2, 99, 0.5)
        expression = f"{shown} {'-' if other < 0 else '+'} {abs(other)}"
    else:
        b, n = rng.choice(POWERS)
        other = -(b**n) if rng.random() < 0.6 else b**n
        expression = f"{shown} {'-' if other < 0 else '+'} {b}^{n}"
        steps.append(power_steps(b, n, False))
    total = first + other
    steps.append(add_steps(first, other))
    compact = expression.replace(" ", "")
    return Item(
        "powers", level, ask(rng, expression), str(total), ", ".join(steps), f"{compact}={total}", compact
    )


def fraction_powers(rng: random.Random) -> Item:
    """A power of a fraction, sometimes with a negative exponent, plus an integer."""
    while True:
        base = Fraction(signed(rng, 1, 9, 0.4), rng.randint(2, 9))
        exponent = rng.choice((-2, -1, 2, 3))
        if base.denominator > 1 and (exponent != 3 or max(abs(base.numerator), base.denominator) < 7):
            break
    extra = signed(rng, 1, 5, 0.5)
    power = base**exponent
    answer = power + extra
    flip = f"({1 / base})^{-exponent}=" if exponent < -1 else ""
    steps = f"({base})^{exponent}={flip}{power}, {power}{plus(extra)}="
    bottom = power.denominator
    steps += f"{power.numerator}/{bottom}{plus(extra * bottom)}/{bottom}={answer}"
    if power.denominator == 1:
        steps = f"({base})^{exponent}={flip}{power}, {power}{plus(extra)}={answer}"
    raised = f"({exponent})" if exponent < 0 else str(exponent)
    expression = f"({base})^{raised} {'-' if extra < 0 else '+'} {abs(extra)}"
    compact = expression.replace(" ", "")
    return Item("powers", 3, ask(rng, expression), str(answer), steps, f"{compact}={answer}", compact)


def decimals(rng: random.Random, level: int) -> Item:
    """Sums and differences of decimals (1, 2) and their products (3)."""
    if level == 3:
        a, b = rng.randint(11, 99), rng.randint(2, 59)
        negative = rng.random() < 0.3
        product = a * b
        answer = decimal(Fraction(-product if negative else product, 100))
        expression = f"{'-' if negative else ''}{decimal(Fraction(a, 10))} * {decimal(Fraction(b, 10))}"
        trace = f"{times_steps(a, b)}, {'-' if negative else ''}{product}/100={answer}"
    else:
        places = [1, 1] if level == 1 else rng.choice(([2, 1], [1, 2], [2, 2]))
        parts = [
            Fraction(signed(rng, 1, 10 ** (p + 1) - 1, 0.2 if i == 0 else 0.5), 10**p)
            for i, p in enumerate(places)
        ]
        total = parts[0] + parts[1]
        wide = max(places)
        answer = decimal(total)
        second = f"{'-' if parts[1] < 0 else '+'} {decimal(abs(parts[1]))}"
        expression = f"{decimal(parts[0])} {second}"
        scaled = [int(p * 10**wide) for p in parts]
        trace = f"{add_steps(*scaled)}, {scaled[0] + scaled[1]}/{10**wide}={answer}"
    compact = expression.replace(" ", "")
    return Item("decimals", level, ask(rng, expression), answer, trace, f"{compact}={answer}", compact)


def values(rng: random.Random, level: int) -> Item:
    """The value of a linear (1), monic (2) or general (3) polynomial at an integer."""
    x = signed(rng, 2, 12 if level < 3 else 9, 0.5)
    a = 0 if level == 1 else 1 if level == 2 else signed(rng, 2, 5, 0.3)
    b, c = signed(rng, 2, 12, 0.5), signed(rng, 1, 30, 0.5)
    square = {0: "", 1: "x^2"}.get(a, f"{a}x^2")
    polynomial = f"{square} {'-' if b < 0 else '+'} {abs(b)}x" if a else f"{b}x"
    polynomial += f" {'-' if c < 0 else '+'} {abs(c)}"
    steps, total = [], b * x
    if a:
        steps.append(f"x^2={x * x}" if a == 1 else f"x^2={x * x}, {a}*{x * x}={a * x * x}")
    steps.append(f"{b}*{operand(x)}={b * x}")
    if a:
        steps.append(f"{a * x * x}{plus(b * x)}={a * x * x + b * x}")
        total += a * x * x
    steps.append(f"{total}{plus(c)}={total + c}")
    template = rng.choice(
        (
            "Let x = {x}. Compute {p}.",
            "Evaluate {p} at x = {x}.",
            "If x = {x}, what is {p}?",
            "What is {p} when x = {x}?",
        )
    )
    key = f"{polynomial}@{x}".replace(" ", "")
    terse = f"{polynomial.replace(' ', '')}={total + c}"
    return Item(
        "values", level, template.format(x=x, p=polynomial), str(total + c), ", ".join(steps), terse, key
    )


def means(rng: random.Random, level: int) -> Item:
    """The mean of two, three or four integers: often a fraction or a decimal."""
    numbers = [signed(rng, 1, 60 if level == 1 else 30, 0.35) for _ in range(level + 1)]
    total, steps = numbers[0], []
    for value in numbers[1:]:
        steps.append(f"{total}{plus(value)}={total + value}")
        total += value
    answer = decimal(Fraction(total, len(numbers)))
    raw = f"{total}/{len(numbers)}"
    steps.append(raw if raw == answer else f"{raw}={answer}")
    listed = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
    template = rng.choice(
        (
            "Find the mean of {}.",
            "Compute the average of {}.",
            "What is the mean of {}?",
            "What is the average of {}?",
        )
    )
    key = "mean " + ",".join(map(str, sorted(numbers)))
    return Item("means", level, template.format(listed), answer, ", ".join(steps), f"mean={answer}", key)


FAMILIES: dict[str, Callable[[random.Random, int], Item]] = {
    f.__name__: f for f in (sums, products, equations, fractions, percents, powers, decimals, values, means)
}


def make_item(rng: random.Random, family: str, level: int) -> Item:
    """Draw one problem of a family (a key of `FAMILIES`) and a level (1, 2, 3)."""
    return FAMILIES[family](rng, level)
