"""Adding up the gradients of a step's micro-batches: only the last one brings processes together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def micro_batch_of_step(accelerator: Any, model: torch.nn.Module, last: bool) -> Iterator[None]:
    """Within, forward and backward of one micro-batch; `last`: of the step's last one.

    DDP and FSDP exchange gradients at the last backward only. DeepSpeed takes an optimizer step at every
    backward for which accelerate's `sync_gradients` is set, so that flag is told as well.
    """
    accelerator.gradient_state._set_sync_gradients(last)
    if last:
        yield
        return
    with accelerator.no_sync(model):
        yield
