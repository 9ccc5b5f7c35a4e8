"""A reward for trlmath: the share of the reasoning's arithmetic claims ``a op b = c`` that are right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from trlmath import Grade, RecipeError, hookimpl

trlmath_api = 1

_NUMBER = r"\d{1,18}(?:,\d{3}){0,5}(?:\.\d{1,12})?"
_OPERATORS = {
    **dict.fromkeys(("+",), "+"),
    **dict.fromkeys(("-", "\u2212", "\u2013"), "-"),
    **dict.fromkeys(("*", "x", "\u00d7", "\u00b7", r"\times", r"\cdot"), "*"),
    **dict.fromkeys(("/", "\u00f7", ":", r"\div"), "/"),
}
_OPERATOR = "|".join(re.escape(sign) for sign in sorted(_OPERATORS, key=len, reverse=True))
_CLAIM = re.compile(
    rf"(?P<a>(?<![\w.)])-?{_NUMBER})[ \t]*(?P<op>{_OPERATOR})[ \t]*(?P<b>\(?-?{_NUMBER}\)?)[ \t]*=[ \t]*"
    rf"(?P<c>-?{_NUMBER})(?![\w^])(?!\.\d)(?![ \t]*(?:{_OPERATOR})[ \t]*\(?-?\d)"
)
# what may stand before a claim that is complete: not the operator of a longer sum
_CHAINED = re.compile(rf"(?:{_OPERATOR}|\^|\()[ \t]*$")


@dataclass(frozen=True)
class Arithmetic:
    """The share of the arithmetic claims ``a op b = c`` that are right, in the reasoning before ``</think>``.

    `where: all` reads the whole completion. A claim counts once; `enough` distinct right ones are needed for
    the full reward. `without`: the reward of a completion that claims nothing.
    """

    where: Literal["think", "all"] = "think"
    enough: int = 1
    without: float = 0.0

    def __post_init__(self) -> None:
        if self.enough < 1:
            raise RecipeError(f"arithmetic needs enough >= 1; got {self.enough}.")

    def __call__(self, completions: Sequence[str]) -> list[Grade]:
        return [self._grade(text) for text in completions]

    def _grade(self, text: str) -> Grade:
        found = claims(text.partition("</think>")[0] if self.where == "think" else text)
        right = sum(found.values())
        if not found:
            return Grade(self.without, {"steps_right": None, "steps_any": 0.0}, reason="no arithmetic claim")
        wrong = next((claim for claim, holds in found.items() if not holds), None)
        return Grade(
            reward=right / max(len(found), self.enough),
            parts={"steps_right": right / len(found), "steps_any": 1.0},
            reason=f"{right} of {len(found)} claims are right" + (f"; not {wrong}" if wrong else ""),
        )


def claims(text: str) -> dict[str, bool]:
    """Return each distinct claim of `text`, in order, and whether it holds."""
    found: dict[str, bool] = {}
    for match in _CLAIM.finditer(text):
        if _CHAINED.search(text, max(0, match.start() - 12), match.start()):
            continue
        a, b, c = (match[name].strip("()").replace(",", "") for name in "abc")
        op = _OPERATORS[match["op"]]
        found[f"{a} {op} {b} = {c}"] = holds(Fraction(a), op, Fraction(b), c)
    return found


def holds(a: Fraction, op: str, b: Fraction, claimed: str) -> bool:
    """True when ``a op b`` is `claimed`, exactly, or rounded to the decimals that `claimed` shows."""
    if op == "/" and b == 0:
        return False
    result = {"+": a + b, "-": a - b, "*": a * b}[op] if op != "/" else a / b
    said = Fraction(claimed)
    if result == said:
        return True
    decimals = -int(Decimal(claimed).as_tuple().exponent)
    return decimals > 0 and abs(result - said) * 2 <= Fraction(1, 10**decimals)


@hookimpl
def register_rewards(register):
    """Offer the reward under the name that recipes write."""
    register("arithmetic", Arithmetic)
