"""The callback that ends a run which was asked to stop, at the next step that it can go on from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from trlmath.training.stopping import StopRequest


class StopAtBoundary(TrainerCallback):
    """Stops and saves at the next step after a request at which a run can be continued.

    Args:
        request: noted on any process; one is enough for all.
        boundary: whether a run can go on from after `step` optimizer steps.
        processes: of the run; above 1 they agree after every step.
        device: that they exchange tensors on.

    Attributes:
        stopped: the run ends after this step, and is saved.
    """

    def __init__(
        self, request: StopRequest, boundary: Callable[[int], bool], processes: int, device: Any
    ) -> None:
        self.request, self.boundary, self.processes, self.device = request, boundary, processes, device
        self.stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look whether a stop was asked for."""
        self.look(state, control)

    def look(self, state: Any, control: Any) -> None:
        """End the run if a stop was asked for; every process must call this equally often."""
        if not self.boundary(state.global_step) or state.global_step >= state.max_steps:
            return
        if self.asked():
            self.stopped = control.should_save = control.should_training_stop = True

    def asked(self) -> bool:
        """Whether a stop was asked for on any process; every process must call this equally often."""
        if self.processes == 1:
            return self.request.asked
        flag = torch.tensor(float(self.request.asked), device=self.device)
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
        return bool(flag)
