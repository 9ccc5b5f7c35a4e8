"""The launcher that started this process: its end is a request to stop, and what it leaves undone is told.

`accelerate launch` with one process passes no signal on: it dies of SIGTERM, and the run would go on alone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import PurePath

import psutil

_NAMES = ("accelerate", "accelerate-launch", "torchrun", "deepspeed")
_MODULES = ("accelerate.commands.launch", "torch.distributed.run", "deepspeed.launcher.launch")
_PR_SET_PDEATHSIG = 1
# seconds in which a signal to the launcher and one to the run are the same request
TOGETHER = 0.5
ONE_PROCESS = (
    "accelerate was asked for several processes and started one, as it does without `--multi_gpu`. For "
    "several (on CPUs too) put that in place of `--cpu`, or give --config_file recipes/accelerate/ddp.yaml."
)
# torch's default for TORCH_ELASTIC_SHUTDOWN_TIMEOUT
LIMIT = 30

_asked = False


def follow_launcher() -> bool:
    """Take the launcher's end for a first SIGTERM, unless one was there already; whether that is arranged.

    A shell is no launcher: a run that `nohup` started outlives it. Linux alone can do it; call it in the main
    thread.
    """
    parent = _launcher()
    if parent is None or sys.platform != "linux":
        return False
    number = signal.SIGRTMIN  # after SIGINT and SIGTERM, when they are handled together
    signal.signal(number, _ended)
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        return False  # a sandbox forbids it
    if os.getppid() != parent.pid:  # it ended before it could be followed
        signal.raise_signal(number)
    return True


def stop_asked() -> None:
    """Note that a stop was asked for: the launcher's end asks for no second one."""
    global _asked
    _asked = True


def _ended(number: int, frame: object) -> None:
    time.sleep(TOGETHER)  # what came to the whole group is handled in here
    if not _asked:
        signal.raise_signal(signal.SIGTERM)


def left_out() -> str:
    """What to tell when accelerate was asked for several processes and started one; else nothing."""
    parent = _launcher()
    if parent is None or "WORLD_SIZE" in os.environ:
        return ""
    try:
        before = parent.environ()
    except psutil.Error:
        return ""
    # it gives this to one process of several, and to a single one it does not
    return ONE_PROCESS if "MASTER_ADDR" in os.environ and "MASTER_ADDR" not in before else ""


def limit_of_a_stop(environment: Mapping[str, str] = os.environ) -> str:
    """What to add to the answer to a first signal: how long torch's launcher lets the run go on."""
    if "TORCHELASTIC_RUN_ID" not in environment or "TORCH_ELASTIC_SHUTDOWN_TIMEOUT" in environment:
        return ""
    return f"; the launcher ends it after {LIMIT} s (TORCH_ELASTIC_SHUTDOWN_TIMEOUT, set before the start)"


def _launcher() -> psutil.Process | None:
    """This process's parent, if that is a launcher."""
    try:
        parent = psutil.Process().parent()
        return parent if parent is not None and is_launcher(parent.cmdline()) else None
    except psutil.Error:  # it has just ended, or is not ours to look at
        return None


def is_launcher(words: list[str]) -> bool:
    """Whether a command line is that of accelerate, torch's launcher or DeepSpeed's."""
    for word in words[:4]:
        path = PurePath(word)
        dotted = ".".join(path.with_suffix("").parts[-3:]) if path.suffix == ".py" else word
        if path.name in _NAMES or dotted in _MODULES:
            return True
    return False
