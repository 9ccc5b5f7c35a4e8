"""Checkpoints that are whole or not there: written beside, hashed, fsynced, renamed, verified before use."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEAL = "files.json"
PREFIX = "checkpoint-"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that verifies.

    Attributes:
        path: its folder.
        step: optimizer steps taken.
        facts: what was noted of the run when it was made.
    """

    path: Path
    step: int
    facts: Mapping[str, Any]


def publish(beside: Path, target: Path, facts: Mapping[str, Any]) -> None:
    """Seal the folder `beside` with the sizes and hashes of its files, and rename it to `target`.

    A kill at any moment leaves `target` as it was, missing or whole.
    """
    files = {
        str(p.relative_to(beside)): p for p in sorted(beside.rglob("*")) if p.is_file() and p.name != SEAL
    }
    listed = {name: {"bytes": p.stat().st_size, "sha256": _hash(p)} for name, p in files.items()}
    for path in files.values():
        _sync(path)
    seal = beside / SEAL
    seal.write_text(json.dumps({"files": listed, "facts": facts}, indent=2) + "\n", encoding="utf-8")
    _sync(seal)
    _sync(beside)
    if target.exists():  # a broken one of the same step, which was passed over
        shutil.rmtree(target)
    beside.rename(target)
    _sync(target.parent)


def verify(folder: Path) -> tuple[Checkpoint | None, str]:
    """Return (checkpoint, "") when every file is as it was sealed, else (None, what is wrong)."""
    seal = folder / SEAL
    if not seal.is_file():
        return None, f"it has no {SEAL}: saving it did not end"
    try:
        told = json.loads(seal.read_text(encoding="utf-8"))
        listed, facts = told["files"], told["facts"]
        step = int(folder.name.removeprefix(PREFIX))
    except (ValueError, KeyError, TypeError) as error:
        return None, f"its {SEAL} cannot be read: {error}"
    for name, was in listed.items():
        path = folder / name
        if not path.is_file():
            return None, f"{name} is missing"
        if path.stat().st_size != was["bytes"]:
            return None, f"{name} has {path.stat().st_size} bytes and had {was['bytes']}"
        if _hash(path) != was["sha256"]:
            return None, f"{name} is not what was written (its hash differs)"
    return Checkpoint(folder, step, facts), ""


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the newest checkpoint in `folder` that verifies, and a sentence for each passed over."""
    passed: list[str] = []
    for path in sorted(_all(folder), key=_step, reverse=True):
        found, wrong = verify(path)
        if found is not None:
            return found, passed
        passed.append(f"{path.name} is passed over: {wrong}")
    return None, passed


def prune(folder: Path, keep_last: int, best: str | None = None) -> None:
    """Remove all but the `keep_last` newest checkpoints and the one called `best`; what kills left, too."""
    for path in sorted(_all(folder), key=_step, reverse=True)[keep_last:]:
        if path.name != best:
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob(f".{PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)


def _all(folder: Path) -> list[Path]:
    return [p for p in folder.glob(f"{PREFIX}*") if p.is_dir() and p.name.removeprefix(PREFIX).isdigit()]


def _step(path: Path) -> int:
    return int(path.name.removeprefix(PREFIX))


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
