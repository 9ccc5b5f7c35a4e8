"""The file of samples: rows are appended as they come, and a killed evaluation goes on from them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from trlmath.errors import DataError
from trlmath.evaluation.sample import Sample


def append_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Append rows in one write, each a line of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(_line(sample.to_row()) for sample in samples)
    with path.open("ab") as file:
        file.write(text.encode("utf-8"))


def read_samples(path: Path) -> list[Sample]:
    """Read every complete row; a last line without its end, left by a kill, is passed over.

    Raises:
        DataError: no such file, or a line that is no row of an evaluation.
    """
    if not path.is_file():
        raise DataError(f"there is no file {path}. Give the samples.jsonl of an evaluation, or its folder.")
    lines = path.read_bytes().split(b"\n")[:-1]
    return [_parse(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1) if line.strip()]


def resume(path: Path, complete: Iterable[tuple[str, Sequence[int], int]]) -> list[Sample]:
    """Make the file hold whole chunks only, each row once, and return its rows.

    Args:
        path: may not exist yet.
        complete: the chunks that the evaluation consists of: (setting, problem numbers, n). A chunk
            with a row missing is dropped as a whole, since it will be generated again as a whole.
    """
    if not path.exists():
        return []
    found = {sample.cell: sample for sample in read_samples(path)}
    kept: list[Sample] = []
    for setting, numbers, n in complete:
        cells = [(setting, number, index) for number in numbers for index in range(n)]
        if all(cell in found for cell in cells):
            kept += [found[cell] for cell in cells]
    text = "".join(_line(sample.to_row()) for sample in kept).encode("utf-8")
    if text != path.read_bytes():
        beside = path.with_name(f".{path.name}.resume")
        beside.write_bytes(text)
        beside.replace(path)
    return kept


def _line(row: dict[str, Any]) -> str:
    # half a surrogate pair, as a byte-level tokenizer can cut it, is no UTF-8: written as an escape
    text = json.dumps(row, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = json.dumps(row, ensure_ascii=True)
    return text + "\n"


def _parse(line: bytes, where: str) -> Sample:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where} is not valid JSON: {error}.") from error
    if not isinstance(row, dict):
        raise DataError(f"{where} is a JSON {type(row).__name__}, not a row of an evaluation.")
    return Sample.from_row(row, where)
