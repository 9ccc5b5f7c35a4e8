"""Asks the health checks after every logged step and evaluation, and does what the recipe says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trlmath.errors import TrainingError
from trlmath.recipe.schema import ChecksSection
from trlmath.together import from_main
from trlmath.training.display import grouped
from trlmath.training.health import NAMES, Finding, Health, Numbers


class HealthCheck(TrainerCallback):
    """Warns once of each check that strikes, or ends the run.

    Args:
        section: the recipe's.
        tell: shows a line.
        directory: the run's, once it is known.

    Raises:
        TrainingError: from a callback, on every process: a check that the recipe has at ``stop`` struck.
    """

    def __init__(
        self, section: ChecksSection, tell: Callable[[str], None], directory: Callable[[], Path]
    ) -> None:
        self.section, self.tell, self.directory = section, tell, directory
        self._health = Health(section.window)
        self._told: set[str] = set()

    def recall(self, main: bool) -> None:
        """Take in what an interrupted run has written, so that it goes on as if it had not been."""
        for row in from_main(main, lambda: written(self.directory() / "metrics.jsonl")):
            self._health.step(row)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Have a step looked at before a checkpoint is written of it; `trainer.logging_steps` may be more."""
        control.should_log = control.should_log or control.should_save

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Look at a step's numbers."""
        self.look(grouped(logs or {}), state.global_step)

    def look(self, numbers: Mapping[str, float], step: int) -> None:
        """Look at the numbers of a step, an evaluation, or an iteration's sampling."""
        self._act(self._health.step(numbers), step)

    def _act(self, findings: Sequence[Finding], step: int) -> None:
        for finding in findings:
            action = getattr(self.section, finding.check)
            if action == "stop":
                raise TrainingError(f"stopped at step {step} by the check {finding} {self._where()}")
            if action == "warn" and finding.check not in self._told:
                self._told.add(finding.check)
                self.tell(f"check    step {step}: {finding}")

    def _where(self) -> str:
        files = sorted((self.directory() / "rollouts").glob("*.parquet"))
        rollouts = f"The last rollouts are in {files[-1]}, the" if files else "The"
        return f"{rollouts} numbers in {self.directory() / 'metrics.jsonl'}."


def written(file: Path) -> list[Numbers]:
    """The numbers that are looked at, of each line of a ``metrics.jsonl``."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8") as lines:
        rows = (json.loads(line) for line in lines)
        return [{name: row[name] for name in NAMES if name in row} for row in rows]
