"""A forked process that dies, by its own SIGKILL, in the middle of what it does to files."""

from __future__ import annotations

import os
import shutil
import signal
import sys


def killed_at_every_file_operation(work, folder):
    """Do `work` in forked processes, of which the n-th dies as it begins its n-th file operation in `folder`.

    Yields n after each death, with `folder` as the dead process has left it; puts it back as it was.
    Ends with the first process that lives through it. What Python code does counts: open, rename, mkdir, ...
    """
    before = folder.with_name(f"{folder.name}-before")
    shutil.copytree(folder, before)
    number = 0
    while True:
        number += 1
        pid = os.fork()
        if pid == 0:
            _die_at(number, str(folder))
            status = 1
            try:
                work()
                status = 0
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert status in (0, -signal.SIGKILL)
        if status == 0:
            break
        yield number
        shutil.rmtree(folder)
        shutil.copytree(before, folder)
    shutil.rmtree(before)


def _die_at(number, folder):
    left = [number]

    def hook(event, arguments):
        if event.startswith(("open", "os.", "shutil.")) and any(folder in str(a) for a in arguments):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
