"""The optimizer's step as a phase of its own: timed between the gradients and the weights."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback


class OptimizerClock(TrainerCallback):
    """Times each optimizer step.

    Args:
        spent: called with ``"optimizer"`` and when it began (`time.perf_counter`).
        ended: called then: all phases of the step are known.
    """

    def __init__(self, spent: Callable[[str, float], None], ended: Callable[[], None]) -> None:
        self.spent, self.ended, self.started = spent, ended, 0.0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Gradients are there and clipped."""
        self.started = time.perf_counter()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The weights are new."""
        self.spent("optimizer", self.started)
        self.ended()
