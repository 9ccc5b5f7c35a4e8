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
    """

    def __init__(self, request: StopRequest, boundary: Callable[[int], bool], processes: int) -> None:
        self.request, self.boundary, self.processes = request, boundary, processes
        self.stopped = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look whether a stop was asked for."""
        if not self.boundary(state.global_step) or state.global_step >= state.max_steps:
            return
        asked = self.request.asked
        if self.processes > 1:
            flag = torch.tensor(float(asked), device=args.device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            asked = bool(flag)
        if asked:
            self.stopped = control.should_save = control.should_training_stop = True
