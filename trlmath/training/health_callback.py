"""Asks the health checks after every logged step and evaluation, and does what the recipe says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from trlmath.errors import TrainingError
from trlmath.recipe import Recipe
from trlmath.together import from_main
from trlmath.training.display import grouped
from trlmath.training.evaluation_numbers import evaluation_prefix
from trlmath.training.health import NAMES, Finding, Health, Numbers
from trlmath.training.validation import Validation


class HealthCheck(TrainerCallback):
    """Warns once of each check that strikes, or ends the run.

    Args:
        recipe: its `checks` say what to do.
        tell: shows a line.
        directory: the run's, once it is known.
        problems: of an evaluation, once that is known.

    Raises:
        TrainingError: from a callback, on every process: a check that the recipe has at ``stop`` struck.
    """

    def __init__(
        self,
        recipe: Recipe,
        tell: Callable[[str], None],
        directory: Callable[[], Path],
        problems: Callable[[], int] = int,
    ) -> None:
        self.recipe, self.tell, self.directory, self.problems = recipe, tell, directory, problems
        self._told: set[str] = set()

    @cached_property
    def _health(self) -> Health:
        return Health(self.recipe.checks.window, validation_of(self.recipe, self.problems()))

    def recall(self, main: bool) -> None:
        """Take in what an interrupted run has written, so that it goes on as if it had not been."""
        names = (*NAMES, *self._health.validation.metrics)
        for row in from_main(main, lambda: written(self.directory() / "metrics.jsonl", names)):
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
        validation = self._health.validation
        if validation.idle and self.recipe.checks.falling_validation != "off" and "idle" not in self._told:
            self._told.add("idle")
            self.tell(
                f"check    falling_validation has nothing to look at: an evaluation of this recipe has no "
                f"{' and no '.join(validation.metrics)}"
            )

    def _act(self, findings: Sequence[Finding], step: int) -> None:
        for finding in findings:
            action = getattr(self.recipe.checks, finding.check)
            if action == "stop":
                raise TrainingError(f"stopped at step {step} by the check {finding} {self._where()}")
            if action == "warn" and finding.check not in self._told:
                self._told.add(finding.check)
                self.tell(f"check    step {step}: {finding}")

    def _where(self) -> str:
        files = sorted((self.directory() / "rollouts").glob("*.parquet"))
        rollouts = f"The last rollouts are in {files[-1]}, the" if files else "The"
        return f"{rollouts} numbers in {self.directory() / 'metrics.jsonl'}."


def validation_of(recipe: Recipe, problems: int) -> Validation:
    """What a recipe's evaluations are judged by: what it stops by or keeps by, else the first setting's rate.

    Args:
        problems: of an evaluation.
    """
    settings = recipe.evaluation.settings
    first = evaluation_prefix(settings[0].name) if settings else "eval"
    metrics: tuple[str, ...] = (f"{first}/both", f"{first}/reward")
    better = 1
    if recipe.early_stop:
        metrics, better = (recipe.early_stop.metric,), 1 if recipe.early_stop.mode == "max" else -1
    elif recipe.run.keep_best:
        metrics = (recipe.run.keep_best,)
    own = [s for s in settings if metrics[0].startswith(evaluation_prefix(s.name) + "/")]
    return Validation(metrics, better, problems * (own[0].n if own else 1))


def written(file: Path, names: Sequence[str]) -> list[Numbers]:
    """The numbers called `names`, which are looked at, of each line of a ``metrics.jsonl``."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8") as lines:
        rows = (json.loads(line) for line in lines)
        return [{name: row[name] for name in names if name in row} for row in rows]
