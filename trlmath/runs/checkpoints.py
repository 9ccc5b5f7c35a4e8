"""Checkpoints that are whole or not there: written beside, hashed, fsynced, renamed, verified before use."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trlmath.errors import DataError

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
    listed = {name: {"bytes": p.stat().st_size, "sha256": hash_of(p)} for name, p in files.items()}
    seal = beside / SEAL
    told: dict[str, Any] = {"files": listed, "facts": facts}
    told["sealed"] = digest({"name": target.name, **told})
    seal.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    # what is there already is a broken one of the same step, which was passed over
    _put(beside, target)


@contextmanager
def saved_whole(target: Path, main: bool, wait: Callable[[], None]) -> Iterator[Path]:
    """Yields a folder beside `target` to write to, which then takes its place: no kill leaves half of it.

    Args:
        main: whether this is the process that moves it.
        wait: for all processes of the run.
    """
    beside = target.with_name(f".{target.name}")
    if main:
        shutil.rmtree(beside, ignore_errors=True)
    wait()
    yield beside
    wait()
    if main:
        _put(beside, target)
    wait()


def _put(beside: Path, target: Path) -> None:
    inside = list(beside.rglob("*"))
    for path in [p for p in inside if p.is_file()] + [p for p in inside if p.is_dir()] + [beside]:
        sync(path)
    if target.exists():
        shutil.rmtree(target)
    beside.rename(target)
    sync(target.parent)


def verify(folder: Path) -> tuple[Checkpoint | None, str]:
    """Return (checkpoint, "") when every file is as it was sealed, else (None, what is wrong)."""
    seal = folder / SEAL
    if not seal.is_file():
        return None, f"it has no {SEAL}: saving it did not end"
    try:
        told = json.loads(seal.read_text(encoding="utf-8"))
        listed, facts, sealed = told["files"], told["facts"], told["sealed"]
        step = int(folder.name.removeprefix(PREFIX))
    except (ValueError, KeyError, TypeError) as error:
        return None, f"its {SEAL} cannot be read: {type(error).__name__} {error}"
    if sealed != digest({"name": folder.name, "files": listed, "facts": facts}):
        return None, f"its {SEAL} is not what was written (its hash differs)"
    for name, was in listed.items():
        path = folder / name
        if not path.is_file():
            return None, f"{name} is missing"
        if path.stat().st_size != was["bytes"]:
            return None, f"{name} has {path.stat().st_size} bytes and had {was['bytes']}"
        if hash_of(path) != was["sha256"]:
            return None, f"{name} is not what was written (its hash differs)"
    # a second file of weights, say, that transformers would load instead
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")):
        if str(path.relative_to(folder)) not in {*listed, SEAL}:
            return None, f"{path.relative_to(folder)} was not there when it was saved"
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


def to_continue(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """As `newest`; None only where nothing was saved yet.

    Raises:
        DataError: there are checkpoints, and none verifies.
    """
    found, passed = newest(folder)
    if found is None and passed:
        raise DataError(
            f"no checkpoint in {folder} is whole, so the run cannot go on: {'; '.join(passed)}. Bring one "
            f"back from a copy, or remove {folder} to start this run from its beginning; nothing was changed."
        )
    return found, passed


def prune(folder: Path, saved: int, keep_last: int, best: str | None = None) -> None:
    """Remove all but the `keep_last` newest checkpoints and the one called `best`.

    Args:
        saved: step of the one just saved. Later ones were passed over when the run went on: they go, and
            do not count.
    """
    valid = [path for path in sorted(_all(folder), key=_step, reverse=True) if _step(path) <= saved]
    kept = {*valid[:keep_last], *(path for path in valid if path.name == best)}
    for path in _all(folder):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _all(folder: Path) -> list[Path]:
    return [p for p in folder.glob(f"{PREFIX}*") if p.is_dir() and p.name.removeprefix(PREFIX).isdigit()]


def _step(path: Path) -> int:
    return int(path.name.removeprefix(PREFIX))


def digest(told: Mapping[str, Any]) -> str:
    """SHA-256 of plain data."""
    # what JSON makes of it, so that tuples read back as lists are the same
    return hashlib.sha256(json.dumps(json.loads(json.dumps(told)), sort_keys=True).encode()).hexdigest()


def hash_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
