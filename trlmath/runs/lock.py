"""One run directory, one writer."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import IO

from trlmath.errors import RecipeError

FILE = ".lock"


class RunLock:
    """Holds a run directory for this process until `release`; the kernel lets go when the process ends.

    Raises:
        RecipeError: another process holds it; says which, and on which host.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] | None = (directory / FILE).open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
            self._file.truncate(0)
            self._file.close()
            self._file = None


def _holder(directory: Path) -> str:
    try:
        told = json.loads((directory / FILE).read_text(encoding="utf-8"))
        return f" (process {told['pid']} on {told['host']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
