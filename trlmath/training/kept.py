"""Parts of an SFT run with a state of their own, in its checkpoints and back from there."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from trlmath.training.averaging import WeightAverage
from trlmath.training.early_stop import EarlyStop


class KeptAverage:
    """Averaged weights, in ``average.pt`` (tensors only).

    Args:
        average: the run's.
        model: whose weights are averaged.
    """

    def __init__(self, average: WeightAverage, model: torch.nn.Module) -> None:
        self.average, self.model = average, model

    def save(self, folder: Path) -> None:
        """See `Kept.save`."""
        torch.save(self.average.state_dict(), folder / "average.pt")

    def load(self, folder: Path) -> None:
        """See `Kept.load`."""
        state = torch.load(folder / "average.pt", map_location="cpu", weights_only=True)
        self.average.load_state_dict(state, self.model)


class KeptEarlyStop:
    """How long no evaluation was better, in ``early_stop.json``."""

    def __init__(self, early_stop: EarlyStop) -> None:
        self.early_stop = early_stop

    def save(self, folder: Path) -> None:
        """See `Kept.save`."""
        (folder / "early_stop.json").write_text(json.dumps(self.early_stop.state_dict()), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """See `Kept.load`."""
        told = json.loads((folder / "early_stop.json").read_text(encoding="utf-8"))
        self.early_stop.load_state_dict(told)
