"""Files that rows are appended to: their sizes at a moment, and back to that moment after a kill."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from trlmath.errors import DataError
from trlmath.runs.checkpoints import sync


def sizes_of(directory: Path, names: Iterable[str]) -> dict[str, int]:
    """Bytes of each file of the run directory now; 0 where there is none."""
    return {name: (directory / name).stat().st_size if (directory / name).exists() else 0 for name in names}


def flushed_sizes(directory: Path, names: Iterable[str]) -> dict[str, int]:
    """As `sizes_of`, once all rows, those of evaluations too, are on the disk: a power cut takes none."""
    for name in (*names, "evaluation/samples.jsonl"):
        if (directory / name).exists():
            sync(directory / name)
    return sizes_of(directory, names)


def cut_back(directory: Path, sizes: Mapping[str, int]) -> None:
    """Cut the files to `sizes`: what lies beyond was written by a part of the run that did not end.

    Raises:
        DataError: a file is shorter than it was; nothing is cut then.
    """
    held = sizes_of(directory, sizes)
    for name, size in sizes.items():
        if held[name] < size:
            raise DataError(
                f"{directory / name} has lost rows: {held[name]} bytes of {size}. Start anew in another "
                "run.dir."
            )
    for name, size in sizes.items():
        if held[name] > size:
            with (directory / name).open("r+b") as stream:
                stream.truncate(size)
