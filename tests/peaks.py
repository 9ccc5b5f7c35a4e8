"""The peak of another process's resident memory, by the kernel's own count (VmHWM)."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import launching
from launching import ROOT


def peak_of(script: str, overrides: list[str], log: Path) -> float:
    """Run ``recipes/<script>.py`` to its end and return its peak, MiB; what it prints goes to `log`."""
    command = [sys.executable, f"recipes/{script}.py", *overrides]
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, env=environment())
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, high_water(process.pid))
            time.sleep(0.02)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{log.read_text()[-2000:]}")
    return peak


def high_water(pid: int) -> float:
    """The most resident memory that a process has had so far, MiB; 0 when it is gone."""
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def environment() -> dict[str, str]:
    """As `launching` has it, and no network."""
    return {**launching.environment(), "HF_HUB_OFFLINE": "1"}
