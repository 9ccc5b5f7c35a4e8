"""Two runs side by side: what was asked, what it ran on, what came out; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trlmath.errors import RecipeError
from trlmath.recipe import parse_recipe
from trlmath.runs.read import StoredRun, flat, is_number

WINDOW = 10
# facts of the manifest that tell one run from another beside its recipe
FACTS = (
    "algorithm",
    "python",
    "machine",
    "processes",
    "packages",
    "plugins",
    "git",
    "prompt",
    "data",
    "model",
)
# of a run, not of what it was asked
OWN = ("run.dir", "run.resume")


def recipe_differences(first: StoredRun, second: StoredRun) -> list[tuple[str, Any, Any]]:
    """Keys of the resolved recipes that differ: (key, first, second); a missing key is None."""
    one, two = flat(_current(first.recipe)), flat(_current(second.recipe))
    return [row for row in _different(one, two) if row[0] not in OWN]


def fact_differences(first: StoredRun, second: StoredRun) -> list[tuple[str, Any, Any]]:
    """Versions, code, data and machine that differ."""
    return _different(_facts(first.manifest), _facts(second.manifest))


def last_numbers(run: StoredRun, window: int = WINDOW) -> dict[str, float]:
    """One number a metric: of training, the mean over its last `window` lines; of an evaluation, the last."""
    told: dict[str, list[float]] = {}
    for row in run.metrics:
        for name, value in row.items():
            if name != "step" and is_number(value):
                told.setdefault(name, []).append(value)
    return {
        name: values[-1] if name.startswith("eval") else sum(values[-window:]) / len(values[-window:])
        for name, values in told.items()
    }


def last_settings(run: StoredRun) -> dict[str, str]:
    """The last evaluation of each setting: ``sampled`` -> ``after/sampled``."""
    found: dict[str, str] = {}
    for row in run.evaluations:
        name = str(row.get("name", ""))
        found[name.split("/")[-1]] = name
    return found


def _current(recipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recipe with the keys that came after it was written, at their defaults."""
    if not recipe:  # the file is gone: what it said is not known
        return {}
    try:
        return parse_recipe(dict(recipe)).to_dict()
    except RecipeError:  # of another version of the schema: compared as it is
        return recipe


def _facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    facts = {name: manifest[name] for name in FACTS if name in manifest}
    return flat({"packages": {}, **facts, "other packages": manifest.get("environment", {})})


def _different(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    return [
        (key, one.get(key), two.get(key))
        for key in dict.fromkeys([*one, *two])
        if one.get(key) != two.get(key)
    ]
