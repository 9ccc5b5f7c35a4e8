"""The callback that writes metrics, moves the progress bar and evaluates every N steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from trlmath.evaluation.display import Watch
from trlmath.plugins import notify
from trlmath.runs.directory import RunDirectory
from trlmath.training.display import grouped
from trlmath.training.memory import memory_metrics

# what the progress bar shows of a step's metrics
SHOWN = {"reward": "train/reward", "format": "train/format", "answer": "train/answer", "both": "train/both"}
SHOWN_WITHOUT_REWARD = {"loss": "train/loss", "entropy": "train/entropy"}


class RunObserver(TrainerCallback):
    """Follows one training run.

    Args:
        directory: where ``metrics.jsonl`` is; None on processes other than the first.
        watch: is told of every step, see `Display.training`.
        evaluate: called with the step, on every process, each `every` steps.
        every: 0 for never.
        taken: optimizer steps of earlier trainings, which `on_log` is told of as well (see
            `IteratedSFTTrainer.log`) and which do not count for the progress bar.
    """

    def __init__(
        self,
        directory: RunDirectory | None,
        watch: Watch,
        evaluate: Callable[[int], None] | None = None,
        every: int = 0,
        taken: int = 0,
    ) -> None:
        self.directory, self.watch, self.evaluate, self.every = directory, watch, evaluate, every
        self.taken = taken
        self.last: dict[str, float] = {}
        self.shown = 0  # the step that `last` is of

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Write one line of metrics, grouped."""
        numbers = grouped(logs or {})
        if "train/train_runtime" in numbers:  # transformers' own summary at the end is no step
            return
        if "memory/host" not in numbers:
            numbers |= memory_metrics()
        self.last, self.shown = numbers, state.global_step - self.taken
        if self.directory:
            self.directory.append("metrics.jsonl", {"step": state.global_step, **numbers})

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Log the last step, which `logging_steps` may leave out; evaluate when it is time to."""
        control.should_log = control.should_log or state.global_step >= state.max_steps
        due = self.every and state.global_step % self.every == 0 and state.global_step < state.max_steps
        if due and self.evaluate:
            self.evaluate(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell plugins of a checkpoint."""
        if self.directory:
            path = self.directory.checkpoints / f"checkpoint-{state.global_step}"
            notify("checkpoint_saved", path=path, step=state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the step before: its numbers are logged only after it has ended."""
        if state.global_step:
            self._show(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the last step."""
        self._show(state.global_step)

    def _show(self, step: int) -> None:
        # with `logging_steps` above 1 the numbers may be an earlier step's: then that is said
        told: dict[str, float | str] = {} if self.shown in (0, step) else {"step": str(self.shown)}
        names = SHOWN if "train/reward" in self.last else SHOWN_WITHOUT_REWARD
        told |= {
            short: value
            for short, name in names.items()
            if isinstance(value := self.last.get(name), (int, float)) and not math.isnan(value)
        }
        seconds, tokens = self.last.get("time/step"), self.last.get("train/tokens")
        if seconds and tokens:
            told["tok/s"] = tokens / seconds
        self.watch.metrics(self.last)
        self.watch.advance(1, **told)
