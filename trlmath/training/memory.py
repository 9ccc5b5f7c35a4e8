"""How much memory this process holds (metrics ``memory/...``), and giving back what it does not use."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import psutil
import torch
from transformers import TrainerCallback

from trlmath.sampling.host_memory import GIB


def memory_metrics() -> dict[str, float]:
    """Resident memory and, on a GPU, the most that tensors held since the last call, in GiB."""
    numbers = {"memory/host": psutil.Process().memory_info().rss / GIB}
    if torch.cuda.is_available():
        numbers["memory/gpu_peak"] = torch.cuda.max_memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
    return numbers


class GiveBack(TrainerCallback):
    """Hands freed pages back to the system after each step of a CPU run.

    Steps of ever other lengths leave glibc's heap in pieces that fit no later tensor: without this a run
    whose completions grow holds more after each step, although every tensor was freed.
    """

    def __init__(self) -> None:
        self._trim: Any = None
        if sys.platform == "linux" and not torch.cuda.is_available():
            self._trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have none

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The step's tensors are freed now."""
        if self._trim is not None:
            self._trim(0)
