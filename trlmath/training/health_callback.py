"""Asks the health checks after every logged step and evaluation, and does what the recipe says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transformers import TrainerCallback

from trlmath.errors import TrainingError
from trlmath.recipe.schema import ChecksSection
from trlmath.training.display import grouped
from trlmath.training.health import Finding, Health


class HealthCheck(TrainerCallback):
    """Warns once of each check that strikes, or ends the run.

    Args:
        section: the recipe's.
        tell: shows a line.

    Raises:
        TrainingError: from a callback, on every process: a check that the recipe has at ``stop`` struck.
    """

    def __init__(self, section: ChecksSection, tell: Callable[[str], None]) -> None:
        self.section, self.tell = section, tell
        self._health = Health(section.window)
        self._told: set[str] = set()

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Look at a step's numbers."""
        self._act(self._health.step(grouped(logs or {})), state.global_step)

    def evaluated(self, numbers: Mapping[str, float], step: int) -> None:
        """Look at an evaluation's numbers."""
        self._act(self._health.step(numbers), step)

    def _act(self, findings: list[Finding], step: int) -> None:
        for finding in findings:
            action = getattr(self.section, finding.check)
            if action == "stop":
                raise TrainingError(
                    f"stopped at step {step} by the check {finding} The last rollouts are in rollouts/, the "
                    "numbers in metrics.jsonl."
                )
            if action == "warn" and finding.check not in self._told:
                self._told.add(finding.check)
                self.tell(f"check    step {step}: {finding}")
