"""Whether a loss oscillates: turns again and again, further than it did before; pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median

TURNS = 0.35  # of a window's steps: a swing that has grown turns so often, 7 times in 20
FURTHER = 2.0  # than the loss ranged about its trend in the calmer of the two windows before
LEAST = 0.1  # of the window's median loss: smaller swings are none
OFTEN = 0.85  # of a window's steps turn, when there is nothing calmer before; chance alone reaches 2/3
LARGE = 1.0  # of the window's median loss, each of those
FEWEST = 4  # steps of a window


@dataclass(frozen=True)
class Swings:
    """What was seen: `turns` of more than `size` each; the loss `ranged` before (None: was never calm)."""

    turns: int
    size: float
    ranged: float | None


class Oscillation:
    """Follows a loss, step by step.

    Turns are counted, each by more than a size: a jump is one, a rise or a fall as well, and noise turns no
    further than it did before. `tests/training/test_oscillation.py` holds the share of false alarms.

    Args:
        window: steps that are judged together.
    """

    def __init__(self, window: int) -> None:
        self.window = max(window, FEWEST)
        self._moves: deque[float] = deque(maxlen=3 * self.window)
        self._losses: deque[float] = deque(maxlen=self.window)
        self._joined = False

    def join(self) -> None:
        """The next loss is of another training: its distance from the last one is no move."""
        self._joined = bool(self._losses)

    def add(self, loss: float | None) -> Swings | None:
        """Take a step's loss in and return how it swings, if it does. What is no number begins anew."""
        if loss is None or not math.isfinite(loss):
            self._moves.clear()
            self._losses.clear()
            return None
        if self._joined:
            self._joined = False
        elif self._losses:
            self._moves.append(loss - self._losses[-1])
        self._losses.append(loss)
        return self._judge()

    def _judge(self) -> Swings | None:
        moves, window = list(self._moves), self.window
        if len(moves) < window or len(self._losses) < window:
            return None
        now, level = moves[-window:], abs(median(self._losses))
        size = LARGE * level
        often = turns(now, size)
        if size and often >= OFTEN * window:
            return Swings(often, size, None)
        earlier = [moves[-2 * window : -window], moves[-3 * window : -2 * window]]
        ranges = [reach(before) for before in earlier if len(before) >= window - 1]
        if not ranges:
            return None
        size = max(FURTHER * min(ranges), LEAST * level)
        grown = turns(now, size)
        return Swings(grown, size, min(ranges)) if size and grown >= max(FEWEST, TURNS * window) else None


def turns(moves: Iterable[float], size: float) -> int:
    """How many times the sum of `moves` goes up by `size` and down by `size`, in turn."""
    place = low = high = 0.0
    count = direction = 0
    for move in moves:
        place += move
        low, high = min(low, place), max(high, place)
        if (direction <= 0 and place - low >= size) or (direction >= 0 and high - place >= size):
            direction = 1 if place > low and place == high else -1
            count, low, high = count + 1, place, place
    return count


def reach(moves: Sequence[float]) -> float:
    """How far the places that `moves` lead to are apart, measured from the line to the last of them."""
    slope = fmean(moves)
    places = list(accumulate((move - slope for move in moves), initial=0.0))
    return max(places) - min(places)
