"""Read a run's directory back, finished, running or killed: for reports, lists and comparisons."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from trlmath.errors import DataError, TrlmathError, nearest
from trlmath.recipe.schema import Recipe
from trlmath.recipe.yamls import read as read_yaml
from trlmath.runs.lock import writer_of
from trlmath.runs.shapes import check_evaluation, check_manifest, check_metrics


@dataclass(frozen=True)
class StoredRun:
    """What a run directory holds; files that are not there (yet) count as empty.

    Attributes:
        path: the directory.
        manifest: see docs/run-directory.md.
        recipe: the resolved recipe, plain.
    """

    path: Path
    manifest: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.path.resolve().name

    @property
    def status(self) -> str:
        """``running``, ``finished``, ``failed`` or ``interrupted``; ``unknown`` without a manifest.

        ``killed``: it says ``running``, and its process is gone. A run on another host is not judged.
        """
        told = str(self.manifest.get("status", "unknown"))
        return "killed" if told == "running" and writer_of(self.path) == "gone" else told

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of ``metrics.jsonl``."""
        return list(_checked(self.path / "metrics.jsonl", check_metrics))

    @cached_property
    def training(self) -> list[dict[str, Any]]:
        """Rows of training steps: those with a loss."""
        return [row for row in self.metrics if "train/loss" in row]

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """Rows of ``evaluation/reports.jsonl``, or the settings of an evaluation's ``report.json``."""
        rows = list(_checked(self.path / "evaluation" / "reports.jsonl", check_evaluation))
        if not rows and (self.path / "report.json").is_file():
            settings = _json(self.path / "report.json").get("settings", {})
            rows = [{"step": 0, **report, "name": name} for name, report in settings.items()]
            for row in rows:
                check_evaluation(row, f"{self.path / 'report.json'}, {row['name']}")
        return rows

    @cached_property
    def ledger(self) -> list[dict[str, Any]]:
        """Rows of ``filters.jsonl``."""
        return list(lines_of(self.path / "filters.jsonl"))

    def series(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of one metric, where it was told."""
        told = [(row["step"], row[name]) for row in self.metrics if is_number(row.get(name))]
        return [step for step, _ in told], [value for _, value in told]

    def metric_names(self) -> list[str]:
        """Every metric that was logged, in the order first seen."""
        return list(dict.fromkeys(name for row in self.metrics for name in row if name != "step"))

    def rollout_files(self) -> list[Path]:
        """``rollouts/*.parquet``, earliest first."""
        return sorted((self.path / "rollouts").glob("*.parquet"))


def read_run(path: Path) -> StoredRun:
    """Read the small files of a run; the others are read when asked for.

    Raises:
        DataError: no directory, or one that holds no run.
    """
    if not path.is_dir():
        raise DataError(f"there is no run {path}.{_near(path)} `trlmath runs list` shows the runs.")
    if not is_run(path):
        inside = [child.name for child in sorted(path.iterdir()) if child.is_dir() and is_run(child)]
        tip = f" Inside it are runs: {', '.join(inside[:5])}." if inside else ""
        raise DataError(f"{path} holds no run: neither recipe.yaml nor manifest.json.{tip}")
    recipe: Any = {}
    if (path / "recipe.yaml").is_file():
        try:
            recipe = read_yaml(path / "recipe.yaml") or {}
        except TrlmathError as error:
            raise DataError(f"{path / 'recipe.yaml'} cannot be read: {error}") from error
    manifest = _json(path / "manifest.json")
    check_manifest(manifest, str(path / "manifest.json"))
    return StoredRun(path, manifest, recipe if isinstance(recipe, dict) else {})


def is_run(path: Path) -> bool:
    """Whether a directory holds a run."""
    return (path / "recipe.yaml").is_file() or (path / "manifest.json").is_file()


def find_runs(folder: Path) -> list[Path]:
    """The runs directly inside a folder, oldest first. Raises DataError when there is no folder."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}. Give the folder that holds the runs.")
    found = [child for child in folder.iterdir() if child.is_dir() and is_run(child)]
    return sorted(found, key=lambda child: (_started(child), child.name))


def lines_of(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines; a last line that is still being written is passed over.

    Raises:
        DataError: a line in the middle is no JSON object.
    """
    if not file.is_file():
        return
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):  # without its end: the writer is at it, or was killed
                return
            raise DataError(f"{file}, line {number} is no JSON: {error}.") from error
        if not isinstance(row, dict):
            raise DataError(f"{file}, line {number} is a JSON {type(row).__name__}, not an object.")
        yield row


def _checked(file: Path, check: Callable[[Mapping[str, Any], str], None]) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(lines_of(file), start=1):
        check(row, f"{file}, line {number}")
        yield row


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys of nested mappings and of lists of mappings: ``rewards.0.weight``."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{name}.")
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for index, item in enumerate(value):
                found |= flat(item, f"{name}.{index}.")
        else:
            found[name] = value
    return found


def changed_from_defaults(recipe: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Keys of a resolved recipe whose value is not the default: key -> (value, default)."""
    mine, defaults = flat(recipe), flat(Recipe().to_dict())
    return {key: (value, defaults.get(key)) for key, value in mine.items() if value != defaults.get(key)}


def is_number(value: Any) -> bool:
    """Whether a metric's value can be drawn."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _started(path: Path) -> str:
    try:
        return str(_json(path / "manifest.json").get("started", ""))
    except DataError:  # whoever reads the run is told
        return ""


def _json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(
            f"{file} is no JSON: {error}. It was cut or changed: mend it, or remove it; the rest can be read."
        ) from error
    return value if isinstance(value, dict) else {}


def _near(path: Path) -> str:
    folder = path.parent
    return nearest(path.name, [c.name for c in folder.iterdir() if is_run(c)]) if folder.is_dir() else ""
