"""How far a run of several phases has come, kept so that a killed one goes on with the phase it was in.

The folder ``state`` of the run directory holds one file for each thing to keep, and ``progress.json``, which
names them with their hashes and is replaced in one step: whatever a kill interrupts, it names files that lie
complete. ``earlier.json`` is the progress before the last weights, for when one of them is damaged later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trlmath.errors import DataError
from trlmath.runs.appended import flushed_sizes
from trlmath.runs.checkpoints import digest, hash_of, sync
from trlmath.runs.directory import RunDirectory

Phase = Literal["sample", "train", "evaluate"]
FILE, EARLIER = "state/progress.json", "state/earlier.json"


@dataclass
class Progress:
    """What is done.

    Attributes:
        iteration, phase: what comes next.
        steps: optimizer steps taken.
        tokens: trained on, as TRL counts them for its metric ``num_tokens``.
        weights_version: iterations whose SFT has changed the weights.
        raised: how often nothing was kept and the temperature raised.
        pool: traces trained on last.
        evaluated: names of the evaluations made, with each its metrics.
        stopped: why the iterations ended early; empty while they go on.
        files: what is kept -> its file in ``state``.
        hashes: file in ``state`` -> SHA-256.
        sizes: bytes of the files that rows are appended to: what lies beyond was written by a phase that
            did not end.
    """

    iteration: int = 0
    phase: Phase = "sample"
    steps: int = 0
    tokens: int = 0
    weights_version: int = 0
    raised: int = 0
    pool: int = 0
    evaluated: dict[str, dict[str, float]] = field(default_factory=dict)
    stopped: str = ""
    files: dict[str, str] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


def read_progress(directory: Path) -> tuple[Progress | None, list[str]]:
    """How far the run in `directory` has come, None when it has kept nothing; and what was passed over.

    Raises:
        DataError: it has kept something, and nothing of it is whole.
    """
    passed: list[str] = []
    if not any((directory / name).exists() for name in (FILE, EARLIER)):
        return None, passed
    for name in (FILE, EARLIER):
        progress, wrong = _verified(directory / name)
        if progress is not None:
            return progress, passed
        passed.append(f"{name} is passed over: {wrong}")
    raise DataError(
        f"nothing that {directory} has kept is whole, so the run cannot go on: {'; '.join(passed)}. Bring "
        f"{directory / 'state'} back from a copy, or start anew in another run.dir; nothing was changed."
    )


def save_progress(
    files: RunDirectory,
    progress: Progress,
    writers: Mapping[str, tuple[str, Callable[[Path], None]]],
    appended: tuple[str, ...],
) -> None:
    """Keep what `writers` write, then say so; files that are not named any more go.

    Args:
        writers: what is kept -> (file name, function that writes the file it is given).
        appended: files of the run directory whose sizes are remembered.
    """
    folder, file, earlier = files.path / "state", files.path / FILE, files.path / EARLIER
    folder.mkdir(parents=True, exist_ok=True)
    if file.exists() and ("weights" in writers or not earlier.exists()):
        files.write_text(EARLIER, file.read_text(encoding="utf-8"))
    for what, (name, write) in writers.items():
        beside = folder / f".{name}"
        write(beside)
        sync(beside)
        beside.replace(folder / name)
        progress.files[what], progress.hashes[name] = name, hash_of(folder / name)
    named = {*progress.files.values()}
    progress.hashes = {name: value for name, value in progress.hashes.items() if name in named}
    progress.sizes = flushed_sizes(files.path, appended)
    told = asdict(progress)
    files.write_json(FILE, {**told, "sealed": digest(told)})
    sync(folder)
    if earlier.exists():
        named |= {*json.loads(earlier.read_text(encoding="utf-8"))["files"].values()}
    for path in folder.iterdir():
        if path.name not in {*named, file.name, earlier.name}:
            path.unlink()


def _verified(file: Path) -> tuple[Progress | None, str]:
    """(progress, "") when it and the files it names are as they were written, else (None, what is wrong)."""
    if not file.exists():
        return None, "it is not there"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        sealed = told.pop("sealed")
        progress = Progress(**told)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return None, f"it cannot be read: {type(error).__name__} {error}"
    if sealed != digest(told):
        return None, "it is not what was written (its hash differs)"
    for name in progress.files.values():
        path = file.parent / name
        if not path.is_file():
            return None, f"{name} is missing"
        if hash_of(path) != progress.hashes[name]:
            return None, f"{name} is not what was written (its hash differs)"
    return progress, ""


def write_lines(path: Path, rows: Any) -> None:
    """Write one line of JSON a row."""
    with path.open("w", encoding="utf-8") as file:
        # escaped: a byte-level tokenizer may have cut a character in two
        file.writelines(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)


def read_lines(path: Path) -> list[Any]:
    """Read what `write_lines` wrote."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
