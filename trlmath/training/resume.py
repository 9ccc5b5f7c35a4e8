"""Find the run that a recipe would go on with, and refuse one that it would spoil."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trlmath.errors import DataError, RecipeError
from trlmath.recipe import Recipe
from trlmath.recipe.yamls import read
from trlmath.runs.lock import writer_of

# where a run writes, whom it tells and where its servers are does not make it another one
_FREE = {
    *("run.dir", "run.resume", "run.report_to", "run.report", "run.keep_rollouts", "run.show_every"),
    *("sampling.url", "sampling.devices", "sampling.weights_dir"),
    *("sampling.start_timeout", "sampling.request_timeout"),
}


def find_unfinished(recipe: Recipe, directory: Path, tell: Callable[[str], None]) -> Path | None:
    """The unfinished run to go on with, or None to start anew in `directory`.

    With `run.dir` that is the run in it. Without, `run.resume: auto` looks for the newest unfinished run of
    the same recipe beside `directory`; one that still runs is passed over, and `tell` says so.
    `run.resume: false` always starts anew.

    Raises:
        RecipeError: `run.dir` holds an unfinished run of another recipe, or `run.resume` is something else.
        DataError: its manifest cannot be read.
    """
    if recipe.run.resume not in (None, "auto", False):
        raise RecipeError(f"run.resume: got {recipe.run.resume!r}; allowed: auto, false, or null.")
    if recipe.run.resume is False:
        return None
    if recipe.run.dir is not None:
        if not _unfinished(directory):
            return None
        changed = changes(directory, recipe)
        if changed:
            raise RecipeError(
                f"run.dir={directory} holds an unfinished run of another recipe: {'; '.join(changed)}. Give "
                "its recipe to go on with it, or choose another run.dir. Nothing was changed."
            )
        return directory
    if recipe.run.resume is None:
        return None
    for folder in sorted(directory.parent.glob(f"{recipe.name}-*"), key=_age):
        if not _unfinished(folder) or changes(folder, recipe):
            continue
        if writer_of(folder) == "alive":
            tell(f"resume   {folder} is passed over: it still runs")
            continue
        return folder
    return None


def changes(directory: Path, recipe: Recipe) -> list[str]:
    """How `recipe` differs from that of the run in `directory`, a sentence a key."""
    before, now = _flat(read(directory / "recipe.yaml")), _flat(recipe.to_dict())
    keys = [key for key in dict.fromkeys([*before, *now]) if key not in _FREE]
    return [
        f"{key} was {before.get(key)!r}, is {now.get(key)!r}"
        for key in keys
        if before.get(key) != now.get(key)
    ]


def _unfinished(directory: Path) -> bool:
    manifest = directory / "manifest.json"
    if not manifest.is_file() or not (directory / "recipe.yaml").is_file():
        return False
    try:
        told = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{manifest} is not valid JSON: {error}. Start anew in another run.dir.") from error
    # an evaluation's has its own way to go on
    return told.get("status") != "finished" and "evaluation" not in told


def _age(directory: Path) -> float:
    return -directory.stat().st_mtime


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix.rstrip("."): value}
    return {
        key: item for name, part in value.items() for key, item in _flat(part, f"{prefix}{name}.").items()
    }
