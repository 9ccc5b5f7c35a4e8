"""Whether the evaluations of a run fall: the last few all under the best one by more than noise; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

EVALUATIONS = 3  # in a row, each under the best by more than each of:
FALL = 0.05  # points of a rate; of the best of anything else
NOISE = 2.5  # standard errors of the difference of two rates


@dataclass(frozen=True)
class Fallen:
    """The metric `name` was at `best` and is at `last`."""

    name: str
    best: float
    last: float


class Validation:
    """Follows one metric over a run's evaluations.

    Args:
        metrics: its name; of several the first that an evaluation has.
        better: 1: higher is better; -1: lower.
        completions: of one evaluation, from which a rate's noise is known; 0: not known.

    Attributes:
        name: of the metric that is looked at; None before the first evaluation, or when it has none.
        idle: an evaluation came and had none of them.
    """

    def __init__(
        self,
        metrics: Sequence[str] = ("eval/both", "eval/reward"),
        better: int = 1,
        completions: int = 0,
    ) -> None:
        self.metrics, self.better, self.completions = tuple(metrics), better, completions
        self.name: str | None = None
        self.idle = False
        self._best: float | None = None
        self._under = 0

    def add(self, numbers: Mapping[str, float | None]) -> Fallen | None:
        """Take an evaluation's numbers in; those of another setting are passed over."""
        prefixes = {metric.split("/")[0] + "/" for metric in self.metrics}
        if not any(name.startswith(tuple(prefixes)) for name in numbers):
            return None
        if self.name is None:
            self.name = next((metric for metric in self.metrics if metric in numbers), None)
            self.idle = self.name is None
        value = numbers.get(self.name) if self.name else None
        if value is None or not math.isfinite(value):
            return None
        best = self._best
        if best is None or self.better * (value - best) > 0:
            self._best, self._under = value, 0
            return None
        self._under = self._under + 1 if self.better * (best - value) > self._margin(best, value) else 0
        return Fallen(str(self.name), best, value) if self._under >= EVALUATIONS else None

    def _margin(self, best: float, value: float) -> float:
        if not (0 <= best <= 1 and 0 <= value <= 1):
            return FALL * abs(best)
        variance = best * (1 - best) + value * (1 - value)
        return max(FALL, NOISE * math.sqrt(variance / self.completions) if self.completions else 0.0)
