"""The time limit gets control back from whatever does not return, in any thread, and costs little."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from trlmath.time_limit import Overrun, call_within


def loop():
    while True:
        pass


def receive():
    here, there = socket.socketpair()
    with here, there:
        here.recv(1)


def swallow():
    for _ in range(2):
        try:
            loop()
        except BaseException:  # noqa: BLE001  (a reward that holds on)
            pass
    loop()


ENDLESS = {
    "loop": loop,
    "sleep": lambda: time.sleep(1e6),
    "socket": receive,
    "lock": lambda: threading.Event().wait(),
    "coroutine": lambda: asyncio.run(asyncio.sleep(1e6)),
    "regex": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
    "power": lambda: 9**9**9,
    "swallow": swallow,
}


@pytest.mark.parametrize("name", ENDLESS)
def test_the_main_thread_comes_back(name):
    started = time.monotonic()
    with pytest.raises(Overrun, match="within 0.3 s") as caught:
        call_within(0.3, "it", ENDLESS[name])
    assert time.monotonic() - started < 10
    assert any(frame.f_code.co_filename == __file__ for frame in caught.value.frames)


@pytest.mark.parametrize("name", ["loop", "sleep", "socket", "lock"])
def test_another_thread_comes_back(name):
    caught = []

    def work():
        try:
            call_within(0.3, "it", ENDLESS[name])
        except Overrun as error:
            caught.append([frame.f_code.co_filename for frame in error.frames])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert caught
    assert __file__ in caught[0]


def test_a_loop_left_behind_in_a_thread_is_ended():
    beats = []

    def beat():
        while True:
            beats.append(1)
            time.sleep(0.01)

    def work():
        with pytest.raises(Overrun):
            call_within(0.2, "it", beat)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    time.sleep(0.2)
    count = len(beats)
    time.sleep(0.2)
    assert len(beats) == count


def test_answers_errors_and_limits_of_its_own_pass():
    assert call_within(None, "it", lambda: 1) == call_within(5, "it", lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):
        call_within(5, "it", lambda: 1 // 0)
    inner = None
    with pytest.raises(Overrun):
        call_within(0.3, "outer", lambda: call_within(60, "inner", loop))
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:  # as math-verify limits itself
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        inner = call_within(5, "it", lambda: time.sleep(0.2) or signal.setitimer(signal.ITIMER_REAL, 0))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert rung == [1]
    assert inner == (0.0, 0.0)
    time.sleep(0.1)  # nothing comes late


@pytest.mark.parametrize(
    ("library", "told"),
    [
        # signals are kept from it: nothing in Python can end it, and our thread does
        ("CDLL", "did not return within 0.5 s, and is in a call that cannot be interrupted"),
        # it keeps the interpreter: only faulthandler's thread of C can end it
        ("PyDLL", "Timeout ("),
    ],
)
def test_c_that_never_returns_ends_the_process_and_says_where(library, told):
    code = f"""
import ctypes, signal, sys, threading
from trlmath import time_limit
time_limit.GRACE = 1.0

def stuck():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGVTALRM])
    ctypes.{library}(None).sleep(1000)

time_limit.call_within(0.5, "reward 'slow'", stuck)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert told in done.stderr
    assert "in stuck" in done.stderr


def test_a_limit_costs_less_than_a_nano_batch_would_notice():
    started = time.perf_counter()
    for _ in range(200):
        call_within(300.0, "it", int)
    assert (time.perf_counter() - started) / 200 < 0.01
