"""Gathering tensors whose first dimension differs by process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def ragged_gather(accelerator: Any, weight: float = 1.0) -> Iterator[None]:
    """Within, `accelerator.gather` pads float tensors to the longest process's rows with NaN.

    TRL's loss gathers one number a row for its metrics (of which it takes NaN-aware extremes) and counts
    on equally many rows everywhere; micro-batches cut by tokens have not. The one scalar it gathers without
    a gradient is the policy's part of the loss, of which this process's share in the whole is `weight`.
    """
    plain = accelerator.gather

    def gather(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() == 0:
            return plain(tensor if tensor.requires_grad else tensor * weight)
        if accelerator.num_processes == 1:
            return plain(tensor)
        rows = plain(torch.tensor(tensor.size(0), device=tensor.device))
        missing = int(rows.max()) - tensor.size(0)
        if missing:
            filler = tensor.new_full((missing, *tensor.shape[1:]), torch.nan)
            tensor = torch.cat([tensor, filler])
        return plain(tensor)

    accelerator.gather = gather
    try:
        yield
    finally:
        del accelerator.gather
