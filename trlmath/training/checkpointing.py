"""Checkpointed: a trainer whose checkpoints are whole or not there, and hold what a run needs to go on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from trlmath.runs.checkpoints import PREFIX, prune, publish

if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = object

_BESIDE = ".saving"


class Kept(Protocol):
    """A part of a run with a state of its own; only the main process has it saved."""

    def save(self, folder: Path) -> None:
        """Write the state into a checkpoint's folder."""
        ...

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote; on every process."""
        ...


class Checkpointed(Trainer):
    """Mixed in before a trainer of transformers: it saves beside, seals, and renames.

    Attributes:
        facts: returns what the main process notes of the run in each checkpoint (plain JSON data).
        kept: what else is written into each checkpoint, and read back before training goes on from one.
        keep_last: checkpoints that stay.
        keep_best: name of one that stays besides, as far as known.
    """

    facts: Callable[[], Mapping[str, Any]] = staticmethod(dict)
    kept: Sequence[Kept] = ()
    keep_last: int = 2
    keep_best: Callable[[], str | None] = staticmethod(lambda: None)
    _saving = False

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / _BESIDE) if self._saving else folder

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _loadable_device(self.args):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self.args.should_save:  # what a kill inside the last save has left
            shutil.rmtree(Path(self.args.output_dir) / _BESIDE, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._saving = True
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._saving = False
        # every process has written its own random state
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            folder, name = Path(self.args.output_dir), f"{PREFIX}{self.state.global_step}"
            for part in self.kept:
                part.save(folder / _BESIDE / name)
            publish(folder / _BESIDE / name, folder / name, self.facts())
            (folder / _BESIDE).rmdir()
            prune(folder, self.state.global_step, self.keep_last, self.keep_best())
        self.accelerator.wait_for_everyone()


@contextmanager
def _loadable_device(args: Any) -> Iterator[None]:
    """Within, a numbered CPU is just the CPU: torch cannot load to ``cpu:0``, as transformers asks it to."""
    device = args.device
    if device.type != "cpu" or device.index is None:
        yield
        return
    vars(args)["_setup_devices"] = torch.device("cpu")  # where the cached property keeps it
    try:
        yield
    finally:
        vars(args)["_setup_devices"] = device


def checkpoint_arguments(every: int, boundary: int = 1) -> dict[str, Any]:
    """Transformers' arguments for a checkpoint each `every` steps, moved up to a multiple of `boundary`."""
    if not every:
        return {"save_strategy": "no"}
    return {"save_strategy": "steps", "save_steps": -(-every // boundary) * boundary}
