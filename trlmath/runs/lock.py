"""One run directory, one writer; and who that is, for whoever only reads."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Literal

from trlmath.errors import RecipeError
from trlmath.runs.directory import RunDirectory

FILE = ".lock"
_LOOKS = 0.2  # seconds: whoever asks `writer_of` holds the lock shared for a moment


class RunLock:
    """Holds a run directory for this process until `release`; the kernel lets go when the process ends.

    Raises:
        RecipeError: another process holds it, says which, and on which host; or it cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file: IO[str] | None = (directory / FILE).open("a+", encoding="utf-8")
        except OSError as error:
            raise RecipeError(
                f"run.dir={directory} cannot be written: {error}. Choose another run.dir."
            ) from error
        try:
            _lock(self._file)
        except OSError as error:
            holder = _holder(directory)
            self._file.close()
            self._file = None
            raise RecipeError(
                f"another process writes to {directory}{holder}. Wait for it, stop it, or choose another "
                "run.dir."
            ) from error
        # the name of a holder that was killed is simply replaced: its lock went with it
        self._file.truncate(0)
        self._file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}))
        self._file.flush()

    def release(self) -> None:
        """Let go."""
        if self._file is not None:
            self._file.close()
            self._file = None


def open_locked(directory: Path, again: bool, held: ExitStack) -> RunDirectory:
    """Open a run directory as its only writer, until `held` closes; what a kill left half written goes.

    Raises:
        RecipeError: as `RunLock` and `RunDirectory` do.
    """
    lock = RunLock(directory)
    try:
        files = RunDirectory(directory, again)
        files.clear_leftovers()
    except BaseException:
        lock.release()
        raise
    held.callback(lock.release)
    return files


def writer_of(directory: Path) -> Literal["alive", "gone", "unknown"]:
    """Whether the process that last wrote to a run directory still does, as far as this host can tell.

    ``unknown``: it ran on another host, or nothing says who it was.
    """
    try:
        with (directory / FILE).open(encoding="utf-8") as file:
            told = json.loads(file.read() or "{}")
            if told.get("host") != socket.gethostname():
                return "unknown"
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "alive"
    except (OSError, ValueError, AttributeError):
        return "unknown"
    return "gone"


def _lock(file: IO[str]) -> None:
    ends = time.monotonic() + _LOOKS
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.02)


def _holder(directory: Path) -> str:
    try:
        told = json.loads((directory / FILE).read_text(encoding="utf-8"))
        return f" (process {told['pid']} on {told['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
