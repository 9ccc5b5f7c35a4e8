"""Checkpointed: a trainer whose checkpoints are whole or not there, and hold what a run needs to go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trlmath.runs.checkpoints import PREFIX, prune, publish

if TYPE_CHECKING:
    from transformers import Trainer
else:
    Trainer = object

_BESIDE = ".saving"


class Checkpointed(Trainer):
    """Mixed in before a trainer of transformers: it saves beside, seals, and renames.

    Attributes:
        facts: returns what the main process notes of the run in each checkpoint (plain JSON data).
        keep_last: checkpoints that stay.
        keep_best: name of one that stays besides, as far as known.
    """

    facts: Callable[[], Mapping[str, Any]] = staticmethod(dict)
    keep_last: int = 2
    keep_best: Callable[[], str | None] = staticmethod(lambda: None)
    _saving = False

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / _BESIDE) if self._saving else folder

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self._saving = True
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._saving = False
        # every process has written its own random state
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            folder, name = Path(self.args.output_dir), f"{PREFIX}{self.state.global_step}"
            publish(folder / _BESIDE / name, folder / name, self.facts())
            (folder / _BESIDE).rmdir()
            prune(folder, self.keep_last, self.keep_best())
        self.accelerator.wait_for_everyone()
