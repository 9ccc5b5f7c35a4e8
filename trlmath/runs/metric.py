"""Metric: one row of the table of metrics, and the words for its unit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

SHARE, NUMBER, TOKENS, SECONDS, NATS = "share, 0 to 1", "number", "tokens", "seconds", "nats a token"


@dataclass(frozen=True)
class Metric:
    """One metric, or one family of them.

    Attributes:
        name: as in ``metrics.jsonl``; ``<...>`` is a placeholder.
        formula: how it is computed, over what.
        unit: of the number.
        moves: what a rise or a fall tells.
    """

    name: str
    formula: str
    unit: str
    moves: str

    def matches(self, name: str) -> bool:
        """Whether a logged name is this metric."""
        return _pattern(self.name).fullmatch(name) is not None


@cache
def _pattern(name: str) -> re.Pattern[str]:
    pieces = re.split(r"(<\w+>)", name)
    # a category is a plugin's text and may hold anything; other placeholders are one word of the name
    return re.compile(
        "".join(
            ".*" if p == "<category>" else r"[^/]+" if p.startswith("<") else re.escape(p) for p in pieces
        ),
        re.DOTALL,
    )
