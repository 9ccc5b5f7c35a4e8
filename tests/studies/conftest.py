"""Ctrl-C reaches the processes that these tests start, also where whoever started pytest ignores it."""

from __future__ import annotations

import signal
import threading

import pytest


@pytest.fixture(autouse=True)
def ctrl_c_is_heard():
    """A background job of a script ignores SIGINT, and what it starts inherits that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
