"""How far the cheap road goes before it leaves the rest to a worker, and how far a worker may go."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Limits:
    """Bounds on the work for one pair; `relax` widens them inside the limited workers only.

    Attributes:
        depth: nesting of the parser (a brace group takes about five levels).
        bits: size of an exact numerator or denominator.
        digits: length of one number literal.
        compare: characters of an answer that is compared by structure.
        relaxed: whether this is a worker.
    """

    depth: int = 200
    bits: int = 30_000
    digits: int = 20_000
    compare: int = 1_500
    relaxed: bool = False

    def relax(self) -> None:
        """Widen to what a worker with its own time and memory limit may try."""
        self.relaxed = True
        self.depth, self.bits, self.compare = 20_000, 4_000_000, 1_000_000


LIMITS = Limits()
"""This process's limits."""
