"""Rows from local files: JSON lines, JSON, CSV, parquet, with errors that name the line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trlmath.errors import DataError, nearest

Rows = list[dict[str, Any]]


def read_rows(path: Path) -> Rows:
    """Return the rows of a file as dicts. Raises DataError: no such file, unknown type, malformed."""
    if path.is_dir():
        raise DataError(f"{path} is a folder. Name one file in it ({', '.join(READERS)}).")
    if path.suffix not in READERS:
        raise DataError(
            f"{path} is of an unknown file type {path.suffix or '(none)'!r}.{nearest(path.suffix, READERS)} "
            f"Readable: {', '.join(READERS)}."
        )
    if not path.is_file():
        beside = [str(p.name) for p in path.parent.glob("*")] if path.parent.is_dir() else []
        raise DataError(f"there is no file {path} (looked in {Path.cwd()}).{nearest(path.name, beside)}")
    return READERS[path.suffix](path)


def _decode(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 (byte {error.start}). Save it as UTF-8.") from error


def _json_lines(path: Path) -> Rows:
    rows = []
    # Not splitlines(): a JSON string may hold U+2028, which is no line end in JSON lines.
    for number, line in enumerate(_decode(path).split("\n"), start=1):
        if line.strip():
            rows.append(_checked(_parse_json(line, f"{path}, line {number}"), f"{path}, line {number}"))
    return rows


def _json(path: Path) -> Rows:
    data = _parse_json(_decode(path), str(path))
    if not isinstance(data, list):
        raise DataError(
            f"{path} holds a JSON {type(data).__name__}; a list of objects is needed (or .jsonl lines)."
        )
    return [_checked(row, f"{path}, item {index}") for index, row in enumerate(data)]


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not valid JSON: {error.msg} at character {error.pos}.") from error
    except RecursionError as error:
        raise DataError(f"{where} is JSON that is nested too deeply to be read.") from error
    except ValueError as error:  # a number of thousands of digits
        raise DataError(f"{where} is JSON that cannot be read: {error}.") from error


def _checked(row: Any, where: str) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(f"{where} is a JSON {type(row).__name__}; an object with named columns is needed.")
    return row


def _csv(path: Path) -> Rows:
    reader = csv.DictReader(io.StringIO(_decode(path), newline=""), strict=True)
    rows = []
    try:
        header = reader.fieldnames or []
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{path}: the header names the column {twice!r} more than once.")
        for row in reader:
            if None in row or None in row.values():
                raise DataError(
                    f"{path}, line {reader.line_num}: the number of cells differs from the header's "
                    f"{len(header)}."
                )
            # CSV cannot tell an empty cell from a missing one; for a dataset it is missing.
            rows.append({key: value if value != "" else None for key, value in row.items()})
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not valid CSV: {error}.") from error
    return rows


def _parquet(path: Path) -> Rows:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} cannot be read as parquet: {error}") from error


READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}
