"""What has changed between a run and its continuation, beside the recipe: refused, or told and recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trlmath.errors import RecipeError

Change = dict[str, Any]

# what makes the steps still to come another run's: (place in the manifest, in words)
_REFUSED = {
    ("data", "train", "sha256"): "the problems to train on",
    ("data", "eval", "sha256"): "the problems held out",
    ("processes",): "the number of processes",
}
_TOLD = {
    ("prompt", "sha256"): "the prompt's template",
    ("python",): "Python",
    ("machine",): "the machine",
    ("cpus",): "the number of CPUs",
    ("engine", "name"): "the engine",
    ("git", "trlmath", "commit"): "the commit of the code",
}


def compare(
    directory: Path, now: Mapping[str, Any], engine: str, begun: bool
) -> tuple[list[Change], list[Any]]:
    """What differs from the run in `directory` as its manifest tells it.

    Args:
        now: the new manifest.
        engine: that generates now.
        begun: something was trained or sampled that is gone on from.

    Returns:
        (for each difference ``what`` (in words), ``was`` and ``is``; the manifest's list of earlier
        continuations). What a manifest does not tell is not compared.

    Raises:
        RecipeError: it would not be the same run: other problems (evaluations of others do not compare, so
            that no best could be told), another number of processes.
    """
    before = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    now = {**now, "engine": {"name": engine}}
    if begun:
        refused = [in_words(change) for change in _changes(_REFUSED, before, now)]
        if refused:
            raise RecipeError(
                f"run.dir={directory} holds an unfinished run that cannot go on: {'; '.join(refused)}. Bring "
                "back what it began with, or start anew: another run.dir, or run.resume=false without one. "
                "Nothing was changed."
            )
    changes = [
        *_changes({**_REFUSED, **_TOLD}, before, now),
        *_table("packages", before, now),
        *_table("variables", before, now),
        *_components(before, now),
    ]
    return changes, before.get("resumed", [])


def _changes(
    places: Mapping[tuple[str, ...], str], before: Mapping[str, Any], now: Mapping[str, Any]
) -> list[Change]:
    found = []
    for place, what in places.items():
        was, is_ = _at(before, place), _at(now, place)
        if was is not None and is_ is not None and was != is_:
            found.append({"what": what, "was": was, "is": is_})
    return found


def _table(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Differences of two tables of names, one that a side lacks among them."""
    was, is_ = before.get(name), now.get(name)
    if was is None or is_ is None:
        return []
    return [
        {"what": key, "was": was.get(key), "is": is_.get(key)}
        for key in dict.fromkeys([*was, *is_])
        if was.get(key) != is_.get(key)
    ]


def _components(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """Components of the same name whose file (by its hash) or distribution's version is another."""
    was, is_ = (
        {
            (kind, number): entry
            for kind, value in (manifest.get("components") or {}).items()
            for number, entry in enumerate(value if isinstance(value, list) else [value])
        }
        for manifest in (before, now)
    )
    shown = ("version", "sha256")
    return [
        {
            "what": f"{place[0]} {entry['name']}",
            "was": {key: was[place].get(key) for key in shown},
            "is": {key: entry.get(key) for key in shown},
        }
        for place, entry in is_.items()
        if place in was and any(was[place].get(key) != entry.get(key) for key in shown)
    ]


def _at(manifest: Mapping[str, Any], place: tuple[str, ...]) -> Any:
    value: Any = manifest
    for key in place:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def in_words(change: Mapping[str, Any]) -> str:
    """One difference, for a line."""
    return f"{change['what']} ({_short(change['was'])}, now {_short(change['is'])})"


def _short(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return " ".join(_short(part) for part in value.values() if part is not None)
    text = str(value)
    return text[:12] if len(text) in (40, 64) else text  # of a hash, its beginning
