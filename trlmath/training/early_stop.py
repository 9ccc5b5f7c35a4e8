"""When evaluations stop getting better; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from trlmath.errors import RecipeError, nearest
from trlmath.recipe.schema import EarlyStopSection


class EarlyStop:
    """Counts the evaluations since the metric was best.

    Args:
        section: the recipe's.

    Attributes:
        stopped: whether training was ended; set by the run, which asks the first time before it trains.
    """

    def __init__(self, section: EarlyStopSection) -> None:
        self.section = section
        self.stopped = False
        self.best: float | None = None
        self.waited = 0

    def record(self, numbers: Mapping[str, float]) -> bool:
        """Take an evaluation's metrics in and return whether to stop.

        Raises:
            RecipeError: the evaluation has no such metric.
        """
        name = self.section.metric
        value, sign = measured("early_stop.metric", name, numbers), 1 if self.section.mode == "max" else -1
        better = self.best is None or sign * (value - self.best) > self.section.min_delta
        if better and not math.isnan(value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.section.patience

    def state_dict(self) -> dict[str, float | int | bool | None]:
        """What goes on from a checkpoint."""
        return {"best": self.best, "waited": self.waited, "stopped": self.stopped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`."""
        self.best, self.waited, self.stopped = state["best"], state["waited"], state["stopped"]

    @property
    def why(self) -> str:
        """In words."""
        best = "a number" if self.best is None else f"{self.best:.4g}"
        return f"{self.section.metric} has not improved on {best} in {self.waited} evaluations"


def measured(key: str, name: str, numbers: Mapping[str, float]) -> float:
    """The metric `name`, which the recipe's `key` asks for, of an evaluation's `numbers`.

    Raises:
        RecipeError: the evaluation has no such metric.
    """
    if name not in numbers:
        raise RecipeError(
            f"{key}: got {name!r}; an evaluation of this recipe has: {', '.join(sorted(numbers))}."
            f"{nearest(name, numbers)}"
        )
    return numbers[name]
