"""The memory that this process may use of its host: in a container its limit counts, not the machine's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

GIB = 2**30
CGROUP = Path("/sys/fs/cgroup")
# versions 2 and 1 of control groups: (limit, what is used, the file cache in it that is given up when asked)
_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def host_memory() -> tuple[int, int]:
    """(free, total) in bytes."""
    memory = psutil.virtual_memory()
    free, total = memory.available, memory.total
    for limit, used in _limits():
        free, total = min(free, max(0, limit - used)), min(total, limit)
    return free, total


def _limits() -> Iterator[tuple[int, int]]:
    """(limit, used) of each control group that has a limit."""
    for limit, used, statistics, cache in _FILES:
        text = _read(limit)
        if text.isdigit():  # version 2 says `max` where there is none
            told = dict(line.split() for line in _read(statistics).splitlines())
            yield int(text), int(_read(used) or 0) - int(told.get(cache, 0))


def _read(name: str) -> str:
    try:
        return (CGROUP / name).read_text(encoding="ascii").strip()
    except OSError:  # no control groups here, or of the other version
        return ""
