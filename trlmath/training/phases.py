"""How far a run of several phases has come, kept so that a killed one goes on with the phase it was in.

The folder ``state`` of the run directory holds one file for each thing to keep, and ``progress.json``, which
names them and is replaced in one step: whatever a kill interrupts, it names files that lie complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from trlmath.errors import DataError
from trlmath.runs.appended import sizes_of
from trlmath.runs.directory import RunDirectory

Phase = Literal["sample", "train", "evaluate"]
FILE = "state/progress.json"


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
    sizes: dict[str, int] = field(default_factory=dict)


def read_progress(directory: Path) -> Progress | None:
    """How far the run in `directory` has come; None when it has kept nothing. Raises DataError."""
    file = directory / FILE
    if not file.is_file():
        return None
    try:
        progress = Progress(**json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise DataError(f"{file} cannot be read: {error}. Start anew in another run.dir.") from error
    missing = [name for name in progress.files.values() if not (file.parent / name).is_file()]
    if missing:
        raise DataError(f"{file.parent} has lost {', '.join(missing)}. Start anew in another run.dir.")
    return progress


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
    folder = files.path / "state"
    folder.mkdir(parents=True, exist_ok=True)
    for what, (name, write) in writers.items():
        beside = folder / f".{name}"
        write(beside)
        beside.replace(folder / name)
        progress.files[what] = name
    progress.sizes = sizes_of(files.path, appended)
    files.write_json(FILE, asdict(progress))
    named = {*progress.files.values(), Path(FILE).name}
    for file in folder.iterdir():
        if file.name not in named:
            file.unlink()


def write_lines(path: Path, rows: Any) -> None:
    """Write one line of JSON a row."""
    with path.open("w", encoding="utf-8") as file:
        # escaped: a byte-level tokenizer may have cut a character in two
        file.writelines(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)


def read_lines(path: Path) -> list[Any]:
    """Read what `write_lines` wrote."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
