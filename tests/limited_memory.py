"""Run as a process: train nano with GRPO or SFT in so much memory more than it has when training begins.

``python tests/limited_memory.py grpo|sft MiB FOLDER [key=value ...]``. Exits as the recipe scripts do.
"""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def virtual() -> int:
    """Bytes of address space of this process."""
    found = re.search(r"VmSize:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def main(algorithm: str, mebibytes: int, folder: str, overrides: list[str]) -> None:
    from trlmath.cli.launch import leave, readable_errors
    from trlmath.recipe import load_recipe
    from trlmath.reports.console import ConsoleDisplay
    from trlmath.training.grpo_run import GrpoRun
    from trlmath.training.sft_run import SftRun

    quiet = ["evaluation.enabled=false", "run.report=false", "run.report_to=none", f"run.dir={folder}"]
    recipe = load_recipe(f"nano/{algorithm}", [*quiet, *overrides])
    with readable_errors(), {"grpo": GrpoRun, "sft": SftRun}[algorithm](recipe, ConsoleDisplay()) as run:
        limit = virtual() + mebibytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        run.train()
    leave(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
