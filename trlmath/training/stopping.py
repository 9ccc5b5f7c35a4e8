"""Ctrl-C and SIGTERM: the first one ends the step, saves and stops; the second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback


class StopRequest:
    """Whether somebody asked the run to stop."""

    def __init__(self) -> None:
        self.asked = False


@contextmanager
def stopping_at_step_end(tell: Callable[[str], None]) -> Iterator[StopRequest]:
    """Within, the first SIGINT or SIGTERM is only noted; the next ones do what they did before.

    Args:
        tell: shows a line to the person waiting.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        request.asked = True
        for each, handler in before.items():
            signal.signal(each, handler)
        tell("stopping after this step, with a checkpoint; once more stops at once")

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
