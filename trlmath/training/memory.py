"""How much memory this process holds, for the metrics ``memory/...``."""

from __future__ import annotations

import psutil
import torch

GIB = 2**30


def memory_metrics() -> dict[str, float]:
    """Resident memory and, on a GPU, the most that tensors held since the last call, in GiB."""
    numbers = {"memory/host": psutil.Process().memory_info().rss / GIB}
    if torch.cuda.is_available():
        numbers["memory/gpu_peak"] = torch.cuda.max_memory_allocated() / GIB
        torch.cuda.reset_peak_memory_stats()
    return numbers
