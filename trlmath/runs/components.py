"""The components of a run on record: where each came from, its file's hash, its options; one-offs copied."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path
from typing import Any

from trlmath.components import Component, Kind, resolve
from trlmath.recipe.schema import Recipe, Ref
from trlmath.recipe.sections import UNREAD
from trlmath.runs.directory import RunDirectory
from trlmath.targets import is_code, is_path

FOLDER = "components"


def components_used(recipe: Recipe, algorithm: str) -> dict[str, Any]:
    """What every component that the recipe names is, as plain data for the manifest.

    Files and Hub ids as datasets or prompts are no components; a dataset's content has a hash of its own.

    Raises:
        PluginError: a name that nothing offers.
    """
    used: dict[str, Any] = {"rewards": [_entry("reward", ref) for ref in recipe.rewards]}
    if algorithm != "evaluate" and "advantage" not in UNREAD.get(algorithm, {}):
        used["advantage"] = _entry("advantage", recipe.advantage)
    used["filters"] = [_entry("filter", ref) for ref in recipe.filters]
    data: list[tuple[str, Kind, Ref | None]] = [
        ("prompt", "prompt", recipe.data.prompt),
        ("train", "dataset", recipe.data.train),
        ("eval", "dataset", recipe.data.eval),
    ]
    for key, kind, ref in data:
        if ref is not None and (is_path(ref.name) or not any(c in ref.name for c in "/.")):
            used[key] = _entry(kind, ref)
    return used


def keep_one_offs(used: dict[str, Any], files: RunDirectory) -> None:
    """Copy the file of each ``file.py:attr`` into the run directory, and note the copy in its entry."""
    for value in used.values():
        for entry in value if isinstance(value, list) else [value]:
            file = str(entry["name"]).rpartition(":")[0]
            if not file.endswith(".py") or entry["sha256"] is None:
                continue
            source = Path(entry["file"])
            # two files of one name stay apart
            copy = f"{FOLDER}/{source.stem}-{entry['sha256'][:8]}.py"
            files.write_text(copy, source.read_text(encoding="utf-8"))
            entry["copy"] = copy


def _entry(kind: Kind, ref: Ref) -> dict[str, Any]:
    component = resolve(kind, ref.name)
    file = file_of(component)
    rule = ref.model_dump(by_alias=True, exclude={"name", "options"}, exclude_defaults=True)
    return {
        "name": ref.name,
        "distribution": component.origin.distribution,
        "version": component.origin.version,
        "place": component.origin.place,
        "file": None if file is None else str(file),
        "sha256": None if file is None else hashlib.sha256(file.read_bytes()).hexdigest(),
        "options": ref.options,
        **rule,
    }


def file_of(component: Component) -> Path | None:
    """The source file of a component; None for what is compiled or made at run time."""
    target = component.loaded
    code = inspect.unwrap(target) if is_code(target) else type(target)
    if not is_code(target) and ":" in component.origin.place:
        # A ready object: the hook that offers it says what it is, its class does not.
        place = Path(component.origin.place.rpartition(":")[0])
        if place.is_file():
            return place
    try:
        found = inspect.getsourcefile(code)
    except TypeError:
        return None
    return Path(found) if found and Path(found).is_file() else None
