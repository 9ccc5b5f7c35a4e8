"""Runs as processes of their own: the command line, the log, and how they are stopped."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from trlmath.errors import RecipeError, nearest

PLACES = ("command", "python", "script", "arguments", "name", "dir", "slot")
# seconds between asking a run to end, asking again, and ending it; the first is for a step and its checkpoint
PATIENCE = (120.0, 10.0)


def command_line(
    launcher: str | None, script: Path, arguments: Sequence[str], name: str, directory: Path, slot: int
) -> list[str]:
    """The command that starts one run.

    Args:
        launcher: None: this Python and the script. Else a command, split like a shell splits, in which
            ``{command}`` stands for that one, ``{script}`` and ``{arguments}`` for its parts, ``{python}``,
            ``{name}``, ``{dir}`` for themselves and ``{slot}`` for 0 to jobs - 1, one of the runs that are
            running. It must return when the run has ended, with its status.

    Raises:
        RecipeError: a place that does not exist, quotes that do not close, or no script in it.
    """
    plain = [sys.executable, str(script), *arguments]
    if launcher is None:
        return plain
    lists = {"command": plain, "arguments": list(arguments)}
    words = {"python": sys.executable, "script": str(script), "name": name, "dir": str(directory)}
    found: list[str] = []
    for part in _split(launcher):
        whole = part[1:-1] if part.startswith("{") and part.endswith("}") else ""
        if whole in lists:
            found += lists[whole]
            continue
        for place, text in {**words, "slot": str(slot)}.items():
            part = part.replace("{" + place + "}", text)
        found.append(part)
    return found


def check_launcher(launcher: str | None) -> None:
    """Raise RecipeError unless `launcher` is None or a command that starts the run."""
    if launcher is None:
        return
    parts = _split(launcher)
    for part in parts:
        for piece in part.split("{")[1:]:
            place = piece.partition("}")[0]
            if place not in PLACES:
                raise RecipeError(
                    f"launcher: there is no {{{place}}}.{nearest(place, PLACES)} "
                    f"There are: {', '.join('{' + p + '}' for p in PLACES)}."
                )
            if place in ("command", "arguments") and part != "{" + place + "}":
                raise RecipeError(f"launcher: {{{place}}} is several words and must be a word of its own.")
    if "{command}" not in parts and not {"{script}", "{arguments}"} <= set(parts):
        raise RecipeError(
            "launcher: it does not start the run. Put {command} in it, or {script} and {arguments}: "
            "`accelerate launch --num_processes 8 {script} {arguments}`."
        )


def _split(launcher: str) -> list[str]:
    try:
        return shlex.split(launcher)
    except ValueError as error:
        raise RecipeError(f"launcher: {launcher!r} cannot be split into words: {error}.") from error


class Child:
    """One run in a process group of its own, its output in a log file.

    Args:
        threads: for ``OMP_NUM_THREADS``, unless it is set already.
        keep: open files that it inherits.

    Raises:
        RecipeError: the command cannot be started.
    """

    def __init__(self, command: Sequence[str], log: Path, threads: int, keep: Sequence[int] = ()) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._started = time.monotonic()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.setdefault("OMP_NUM_THREADS", str(threads))
        # torch's launcher of several processes would kill them after 30
        environment.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(int(PATIENCE[0])))
        with log.open("wb") as output:
            output.write(f"$ {shlex.join(command)}\n".encode())
            output.flush()
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    pass_fds=tuple(keep),
                    start_new_session=True,  # Ctrl-C reaches the study, which then stops its runs itself
                )
            except OSError as error:
                raise RecipeError(f"cannot start {command[0]!r}: {error}.") from error

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self._started

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self._process.poll()

    def ended(self) -> bool:
        """Whether nothing of its group runs; a launcher may end at a signal before the run it started."""
        if self.poll() is None:
            return False
        for process in psutil.process_iter(["status"]):
            try:
                if os.getpgid(process.pid) == self._process.pid and process.info["status"] != "zombie":
                    return False
            except OSError:
                pass  # it has just ended
        return True

    def signal(self, number: int) -> None:
        """Send a signal to the process and to all that it started."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass  # it has just ended

    def last_line(self) -> str:
        """The last line of the log that says something."""
        lines = tail(self.log, 1)
        return lines[0] if lines else ""


def stop(children: Sequence[Child]) -> None:
    """End runs as Ctrl-C would, so that each records it; one that goes on is told again, then ended.

    An interrupt while waiting ends them at once.
    """
    # where Ctrl-C is ignored, as in a background job of a script, the runs have inherited that
    first = signal.SIGTERM if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else signal.SIGINT
    try:
        for number, patience in ((first, PATIENCE[0]), (signal.SIGTERM, PATIENCE[1])):
            for child in children:
                if not child.ended():
                    child.signal(number)
            until = time.monotonic() + patience
            while time.monotonic() < until and not all(child.ended() for child in children):
                time.sleep(0.05)
    finally:
        for child in children:
            child.signal(signal.SIGKILL)  # whatever is left of its group
            while child.poll() is None:
                time.sleep(0.01)


def tail(log: Path, lines: int) -> list[str]:
    """The last so many lines of a log that are not empty, without control characters."""
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 200 * (lines + 20)))
        text = file.read().decode("utf-8", "replace")
    found = [line.rsplit("\r", 1)[-1].rstrip() for line in text.split("\n")]
    return ["".join(c for c in line if c.isprintable() or c == "\t") for line in found if line][-lines:]
