"""Worked answers with a slip in the last step, for studies of training on traces that are partly wrong."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from fractions import Fraction

from trlmath.data.nano.task import Item


def mistaken(items: Sequence[Item], share: float, seed: int) -> set[str]:
    """Return the keys of the `share` of items that get a wrong trace.

    A function of seed and key alone: a larger share contains a smaller one.
    """

    def place(item: Item) -> bytes:
        return hashlib.blake2b(f"wrong {seed} {item.key}".encode(), digest_size=8).digest()

    return {item.key for item in sorted(items, key=place)[: round(share * len(items))]}


def slip(item: Item, seed: int) -> tuple[str, str]:
    """Return (worked steps, answer) that go wrong in the last number: one digit of it is another.

    The steps of an item end in its answer, so the slip looks like a miscalculated last step.
    """
    rng = random.Random(f"slip {seed} {item.key}")
    wrong = item.answer
    digits = [at for at, character in enumerate(item.answer) if character.isdigit()]
    while _value(wrong) in (None, _value(item.answer)):
        at = rng.choice(digits)
        wrong = item.answer[:at] + rng.choice("123456789") + item.answer[at + 1 :]
    return item.trace.removesuffix(item.answer) + wrong, wrong


def _value(text: str) -> Fraction | None:
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        return None
