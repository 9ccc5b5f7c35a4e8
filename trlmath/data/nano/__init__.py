"""The nano task: a generator of short mathematics problems and the base model pre-trained for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trlmath.data.nano.dataset import NanoDataset

MODEL_DIR = Path(__file__).parent / "model"
"""The folder of the embedded base model; ``model.path: nano`` in a recipe means it."""

__all__ = ["MODEL_DIR", "NanoDataset"]


def __getattr__(name: str) -> Any:
    if name == "NanoDataset":
        from trlmath.data.nano.dataset import NanoDataset

        return NanoDataset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
