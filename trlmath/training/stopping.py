"""Ctrl-C and SIGTERM: the first one ends the step, saves and stops; the second one stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from trlmath.launcher import limit_of_a_stop, stop_asked


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
        stop_asked()
        for each, handler in before.items():
            signal.signal(each, handler)
        tell(f"stopping after this step, with a checkpoint; once more stops at once{limit_of_a_stop()}")

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
