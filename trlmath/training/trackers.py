"""Trackers (TensorBoard, W&B, trackio, ...): transformers' own integrations, with our metric names.

transformers puts every name under ``train/``, where a tracker shows one heap; with ours each group
(``train/``, ``eval/``, ``engine/``, ``time/``, ``memory/``) is a panel, and evaluations are sent too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import (
    INTEGRATION_TO_CALLBACK,
    get_available_reporting_integrations,
    integration_utils,
)

from trlmath.training.display import grouped
from trlmath.training.memory import memory_metrics

DEFAULT = "tensorboard"


def reporters(asked: list[str] | None) -> list[str]:
    """Whom ``run.report_to`` names; null: TensorBoard where it is installed, else nobody."""
    if asked is None:
        return [DEFAULT] if DEFAULT in get_available_reporting_integrations() else []
    return [name for name in asked if name != "none"]


def tracker_arguments(directory: Path) -> dict[str, Any]:
    """Arguments of transformers that name the run for trackers; the recipe's own go before them."""
    return {"run_name": directory.name, "project": "trlmath"}


def attach(trainer: Any, directory: Path) -> None:
    """Give a trainer's trackers our names and the run's directory; call before anything is logged."""
    found = trackers_of(trainer)
    if not found:
        return
    # the one function through which every integration passes what it logs
    integration_utils.rewrite_logs = rewrite_logs  # type: ignore[attr-defined]
    os.environ.setdefault("WANDB_DIR", str(directory))
    os.environ.setdefault("WANDB_PROJECT", trainer.args.project)
    for tracker in found:
        if hasattr(tracker, "tb_writer") and tracker.logging_dir is None:
            tracker.logging_dir = str(directory / "tensorboard")
    # first, so that every tracker sees what it adds
    trainer.callback_handler.callbacks.insert(0, _Memory())


def rewrite_logs(d: dict[str, Any]) -> dict[str, Any]:
    """What stands in for transformers' own: names are ours, and grouped already."""
    return grouped(d)


def send(trainer: Any, numbers: Mapping[str, float]) -> None:
    """Send numbers that the trainer itself does not log, such as an evaluation's."""
    for tracker in trackers_of(trainer):
        tracker.on_log(trainer.args, trainer.state, trainer.control, model=trainer.model, logs=dict(numbers))


def close(trainer: Any) -> None:
    """End what was sent after training; a tracker that has ended already does nothing."""
    for tracker in trackers_of(trainer):
        tracker.on_train_end(trainer.args, trainer.state, trainer.control, model=trainer.model)


def trackers_of(trainer: Any) -> list[Any]:
    """The trainer's callbacks that are integrations of transformers."""
    kinds = tuple(INTEGRATION_TO_CALLBACK.values())
    return [callback for callback in trainer.callback_handler.callbacks if isinstance(callback, kinds)]


class _Memory(TrainerCallback):
    """Adds memory to what is logged."""

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        """Add to the logs themselves: all callbacks get the same mapping."""
        if logs is not None and "loss" in logs:
            logs.update(memory_metrics())
