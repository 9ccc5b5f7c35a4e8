"""Does a prediction state the gold answer? The road of rules, cheapest first."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from fractions import Fraction

from trlmath.grading.verdict import Verdict

_FRAC = re.compile(r"(-?)\\[dtc]?frac\{?(\d+)\}?\{?(\d+)\}?")


def _rational(text: str) -> Fraction | None:
    match = _FRAC.fullmatch(text)
    if match:
        text = f"{match[1]}{match[2]}/{match[3]}"
    try:
        return Fraction(text.replace(",", "").replace(" ", ""))
    except (ValueError, ZeroDivisionError):
        return None


def grade_answer(prediction: str, gold: object) -> Verdict:
    """Compare the text of an answer with the gold answer."""
    start = time.perf_counter()
    left = str(prediction).strip().strip("$").rstrip(".").strip()
    right = str(gold).strip().strip("$").rstrip(".").strip() if gold is not None else ""

    def verdict(equal: bool | None, rule: str, reason: str = "") -> Verdict:
        return Verdict(equal, rule, left, right, time.perf_counter() - start, reason)

    if not right:
        return verdict(None, "unreadable_gold", "the gold answer is empty or missing")
    if left == right:
        return verdict(True, "exact_text")
    a, b = _rational(left), _rational(right)
    if a is not None and b is not None:
        return verdict(a == b, "rational")
    return verdict(False, "different_text")


def grade_answers(
    predictions: Sequence[str], golds: Sequence[object], *, workers: int | None = None
) -> list[Verdict]:
    """`grade_answer` for many pairs, in order."""
    return [grade_answer(p, g) for p, g in zip(predictions, golds, strict=True)]
