"""Whether the files of a run directory have the form that docs/run-directory.md promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trlmath.errors import DataError

_OBJECTS = ("summary", "rows", "packages", "environment", "data", "prompt", "seeds", "git", "variables")


def check_manifest(manifest: Mapping[str, Any], where: str) -> None:
    """Raise DataError naming the first field of ``manifest.json`` that has another form."""
    for name in _OBJECTS:
        _need(manifest.get(name), Mapping, f"{where}: {name!r}")
    _need(manifest.get("command"), list, f"{where}: 'command'")
    train = (manifest.get("rows") or {}).get("train")
    _need(train, int, f"{where}: rows.train")


def check_metrics(row: Mapping[str, Any], where: str) -> None:
    """Raise DataError when a line of ``metrics.jsonl`` has no step."""
    if not _is_step(row.get("step")):
        raise DataError(f"{where} has no number as its 'step': {row.get('step')!r}.")


def check_evaluation(row: Mapping[str, Any], where: str) -> None:
    """Raise DataError when a report of an evaluation has rates that cannot be shown."""
    if not isinstance(row.get("name"), str) or not _is_step(row.get("step", 0)):
        raise DataError(f"{where} needs a 'name' (text) and a 'step' (a number).")
    _need(row.get("rates"), Mapping, f"{where}: 'rates'")
    rates = {**(row.get("rates") or {}), "mean_reward": row.get("mean_reward")}
    for name, rate in rates.items():
        _need(rate, Mapping, f"{where}: {name!r}")
        for key in ("value", "low", "high") if rate else ():
            if not isinstance(rate.get(key), (int, float, type(None))):
                raise DataError(f"{where}: {name}.{key} is {rate[key]!r}; a number is needed.")


def check_rollout(row: Mapping[str, Any], where: str) -> None:
    """Raise DataError when a row of rollouts lacks what every one has."""
    if not _is_step(row.get("step")) or not isinstance(row.get("completion"), str):
        raise DataError(f"{where} has no rollouts: each row needs a 'step' and a 'completion'.")


def _is_step(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _need(value: Any, kind: type, what: str) -> None:
    if value is not None and not isinstance(value, kind):
        names = {Mapping: "an object", list: "a list", int: "a whole number"}
        raise DataError(f"{what} is {type(value).__name__} {value!r}; {names[kind]} is needed.")
