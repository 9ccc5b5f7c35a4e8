"""Rewards that tests of several rooms share."""

from __future__ import annotations

from trlmath.types import Grade


class EveryOther:
    """Scores by length, and cannot score the first of each four."""

    name = "every_other"

    def __call__(self, *, completions, **columns):
        return [Grade(None if i % 4 == 0 else float(len(text) + i)) for i, text in enumerate(completions)]
