"""Runs a server's command and ends it, workers and all, when the process that started it is gone.

``python server_guard.py PARENT COMMAND...``. vLLM can miss a SIGTERM while it starts, and its workers outlive
it when it is killed: somebody has to stay who looks. Standard library only: nothing is loaded for this.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType
from typing import NoReturn

# seconds the server has to end by itself
GRACE = 15.0
_PR_SET_PDEATHSIG = 1


class _End(Exception):
    """Asked to end."""


def guard(parent: int, command: list[str]) -> NoReturn:
    """Run `command` and end as it does; at SIGTERM, or when `parent` is gone, end the whole process group.

    Args:
        parent: process that started this one, which leads a process group of its own.
    """
    signal.signal(signal.SIGTERM, _end)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    server = None
    try:
        if os.getppid() != parent:
            raise _End  # it was quicker
        server = subprocess.Popen(command)
        status = server.wait()
    except _End:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if server is not None:
            server.terminate()
            try:
                server.wait(GRACE)
            except subprocess.TimeoutExpired:
                pass  # the signal below cannot be missed
        os.killpg(0, signal.SIGKILL)
    if status < 0:
        if -status == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise _End


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2:])
