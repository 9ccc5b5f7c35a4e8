"""Call something that may never return, and get control back: loops, sleeps, sockets, regexes, big powers.

In the main thread a signal interrupts the call: only a signal reaches code that keeps the interpreter to
itself (a regex that backtracks for ever, ``9**9**9``); SIGALRM is left to the call's own limits. The kernel
sends the signal by processor time, a thread of ours by the clock. Away from the main thread, where no signal
arrives, the call gets a thread of its own, which is left behind.
"""

from __future__ import annotations

import contextvars
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn, TypeVar

SIGNAL = signal.SIGVTALRM
AGAIN = 1.0
"""Seconds between two reminders to a call that has swallowed one."""
TICKS = 30
"""How often within the limit the kernel asks by processor time."""
GRACE = 30.0
"""Seconds after the limit at which a call in C that no reminder reaches ends the process."""

Answer = TypeVar("Answer")


class Overrun(BaseException):
    """A call took longer than its limit; no Exception, so that the call itself is unlikely to catch it.

    Attributes:
        seconds: the limit.
        frames: of the call when its time was up, innermost last.
    """

    def __init__(self, seconds: float, frames: list[FrameType] | None = None) -> None:
        super().__init__(f"no answer within {seconds:g} s")
        self.seconds, self.frames = seconds, frames or []


def call_within(seconds: float | None, what: str, call: Callable[[], Answer]) -> Answer:
    """Return what `call` returns, or raise Overrun after `seconds`; None: no limit.

    A call in C that neither returns nor looks at signals ends the process `GRACE` seconds later, with the
    stacks of all threads on standard error.

    Args:
        what: who is called, for that last message.
    """
    if seconds is None:
        return call()
    if threading.current_thread() is threading.main_thread():
        return _interrupted(seconds, what, call)
    return _left_behind(seconds, what, call)


# -- in the main thread -------------------------------------------------------------------------------

_until: float | None = None  # on time.monotonic's clock; None while nothing is limited


def _remind(number: int, frame: FrameType | None) -> None:
    if _until is not None and time.monotonic() >= _until:
        raise Overrun(0.0)


def _interrupted(seconds: float, what: str, call: Callable[[], Answer]) -> Answer:
    global _until
    if signal.getsignal(SIGNAL) is not _remind:
        # it stays: a reminder on its way when the call returns must not meet the default, which ends us
        signal.signal(SIGNAL, _remind)
    outer, done = _until, threading.Event()
    watch = threading.Thread(
        target=_watch, args=(seconds, what, done), name="trlmath-time-limit", daemon=True
    )
    try:
        try:
            watch.start()
            _last_resort(seconds)
            _until = min(outer or float("inf"), time.monotonic() + seconds)
            # other threads use processor time up as well, and a busy machine gives little: ask often enough
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds / TICKS, seconds / TICKS)
            return call()
        finally:
            _until = outer
            done.set()
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            faulthandler.cancel_dump_traceback_later()
    except Overrun as error:
        raise Overrun(seconds, _frames_of(error)) from None


def _watch(seconds: float, what: str, done: threading.Event) -> None:
    main, end = threading.main_thread().ident, time.monotonic() + seconds + GRACE
    if done.wait(seconds) or main is None:
        return
    while time.monotonic() < end:
        signal.pthread_kill(main, SIGNAL)
        if done.wait(AGAIN):
            return
    _end(seconds, what)


def _end(seconds: float, what: str) -> NoReturn:
    print(
        f"error: {what} did not return within {seconds:g} s, and is in a call that cannot be interrupted; "
        "the process ends. What was written is kept. Where it was:",
        file=sys.__stderr__,
        flush=True,
    )
    faulthandler.dump_traceback(2)
    os._exit(1)


def _last_resort(seconds: float) -> None:
    """For C that never lets any thread of ours run; its own thread is C too."""
    faulthandler.dump_traceback_later(seconds + 2 * GRACE, exit=True, file=2)


def _frames_of(error: BaseException) -> list[FrameType]:
    frames, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != __file__:
            frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames


# -- in another thread ----------------------------------------------------------------------------------


def _left_behind(seconds: float, what: str, call: Callable[[], Answer]) -> Answer:
    answers: list[Answer] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def work() -> None:
        try:
            answers.append(context.run(call))
        except BaseException as error:  # noqa: BLE001  (raised where the answer is waited for)
            errors.append(error)

    thread = threading.Thread(target=work, name=f"trlmath-limited {what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        frames: list[FrameType] = []
        frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
        while frame is not None:
            if frame.f_code.co_filename not in (__file__, threading.__file__):
                frames.insert(0, frame)
            frame = frame.f_back
        _ask_to_end(thread)
        raise Overrun(seconds, frames)
    if errors:
        raise errors[0]
    return answers[0]


def _ask_to_end(thread: threading.Thread) -> None:
    """Raise SystemExit in the thread at its next line of Python, so that a loop does not go on for ever."""
    raise_in: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
    raise_in(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
