"""From a study's entries to its runs: grids, seeds, names, overrides, and which run starts from which."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from trlmath.errors import RecipeError, nearest
from trlmath.recipe.load import anchored
from trlmath.recipe.schema import Recipe
from trlmath.recipe.yamls import parse
from trlmath.studies.schema import RunEntry, StudyFile

FROM = "run:"
MODEL = "model.path"
EVALUATE = "evaluate"


@dataclass(frozen=True)
class StudyRun:
    """One run of a study.

    Attributes:
        name: unique in the study, and the name of its folder there.
        group: `name` without the seed; runs of one group differ in nothing else.
        algorithm: the recipe script.
        recipe: as the study names it.
        overrides: (dotted key, value) in the order they apply, without ``model.path: run:...``.
        seed: of ``seeds``, else None.
        source: name of the run whose result it starts from.
        against: the group that its difference is told to, if it is not the study's baseline.
        entry: the name under ``runs`` that it comes from.
    """

    name: str
    group: str
    algorithm: str
    recipe: str
    overrides: tuple[tuple[str, Any], ...]
    seed: int | None = None
    source: str | None = None
    against: str | None = None
    entry: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """What an override of the command line may call it by, the algorithm included."""
        return (self.name, self.group, self.entry, self.algorithm)

    def arguments(self) -> list[str]:
        """The overrides as they stand on a command line: JSON is YAML and keeps every type."""
        return [f"{key}={json.dumps(value)}" for key, value in self.overrides]


def expand(study: StudyFile, folder: Path, overrides: Sequence[str] = ()) -> list[StudyRun]:
    """Return every run of a study, each after the one it starts from.

    Args:
        folder: of the study file; file names in its values may be relative to it.
        overrides: of the command line, ``key=value`` for every run, or ``RUN:key=value`` for the runs of
            that name or algorithm. They win.

    Raises:
        RecipeError: names that come twice, unknown names, cycles, keys that a study decides.
    """
    common = [*study.base.items(), *((f"evaluation.{k}", v) for k, v in study.evaluation.items())]
    runs = [run for entry in study.runs for run in _variants(entry, common, folder)]
    given = [_parsed(override, runs) for override in overrides]
    for i, run in enumerate(runs):
        own = [(key, value) for target, key, value in given if not target or target in run.names]
        runs[i] = replace(run, overrides=_effective([*run.overrides, *own]))
    errors = _doubles(runs) + [e for run in runs for e in _decided(run)]
    if errors:
        raise RecipeError("\n".join(dict.fromkeys(errors)))
    return _ordered([_linked(run, runs) for run in runs])


def _variants(entry: RunEntry, common: Sequence[tuple[str, Any]], folder: Path) -> list[StudyRun]:
    axes = [[(key, *item) for item in _values(key, values)] for key, values in entry.vary.items()]
    seeds: list[int | None] = [*entry.seeds] or [None]
    found = []
    for chosen in itertools.product(*axes):
        group = "-".join([entry.name, *([",".join(label for _, label, _ in chosen)] if chosen else [])])
        pairs = [*common, *entry.set.items(), *((key, value) for key, _, value in chosen)]
        pairs = [(key, _placed(value, folder)) for key, value in pairs]
        for seed in seeds:
            own = [] if seed is None else [("run.seed", seed)]
            found.append(
                StudyRun(
                    name=group if seed is None else f"{group}-seed{seed}",
                    group=group,
                    algorithm=entry.algorithm,
                    recipe=entry.recipe,
                    overrides=_effective([*own, *pairs]),
                    seed=seed,
                    against=entry.against,
                    entry=entry.name,
                )
            )
    return found


def _placed(value: Any, folder: Path) -> Any:
    """The value with the name of a file beside the study made absolute."""
    if isinstance(value, str):
        return anchored(value, folder)
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return {**value, "name": anchored(value["name"], folder)}
    return [_placed(item, folder) for item in value] if isinstance(value, list) else value


def _effective(pairs: Sequence[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """The overrides without those that a later one replaces, itself or the whole section around it."""
    return tuple(
        pair
        for i, pair in enumerate(pairs)
        if not any(pair[0] == key or pair[0].startswith(f"{key}.") for key, _ in pairs[i + 1 :])
    )


def _values(key: str, values: list[Any] | dict[Any, Any]) -> list[tuple[str, Any]]:
    """(label, value) of one axis of a grid: a mapping's own labels, or ``std=true``."""
    if isinstance(values, dict):
        return [(_clean(str(label)), value) for label, value in values.items()]
    short = key.rsplit(".", 1)[-1]
    return [(f"{short}={_label(value, i)}", value) for i, value in enumerate(values)]


def _label(value: Any, index: int) -> str:
    if isinstance(value, dict):
        value = value.get("name", index)
    if isinstance(value, list):
        value = index
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return f"{value:g}" if isinstance(value, float) else _clean(str(value))


def _clean(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", text)


def _parsed(override: str, runs: Sequence[StudyRun]) -> tuple[str, str, Any]:
    """An override of the command line as (run or algorithm, or '' for all; key; value)."""
    known = dict.fromkeys(name for run in runs for name in run.names)
    # the name of a varied run has an equals sign in it
    target = max((name for name in known if override.startswith(f"{name}:")), key=len, default="")
    key, equals, text = (override.removeprefix(f"{target}:") if target else override).partition("=")
    other, colon, inner = key.partition(":")
    if colon and inner:
        raise RecipeError(
            f"the override {override!r}: no run and no algorithm of this study is called {other!r}."
            f"{nearest(other, known)} There are: {', '.join(known)}."
        )
    if not equals or not key or colon or not all(key.split(".")):
        raise RecipeError(f"the override {override!r} is not of the form key=value or RUN:key=value.")
    return target, key, parse(text, f"the override {override!r}")


def _doubles(runs: Sequence[StudyRun]) -> list[str]:
    names = [run.name for run in runs]
    return [
        f"runs: {names.count(name)} runs are called {name!r}. Give each its own name (values that look "
        "alike get labels in a mapping: `vary: {key: {label: value}}`)."
        for name in dict.fromkeys(names)
        if names.count(name) > 1
    ]


def _decided(run: StudyRun) -> list[str]:
    sections = list(Recipe.model_fields)
    errors = []
    for key, value in run.overrides:
        head = key.split(".")[0]
        if key == "run.dir" or (key == "run" and isinstance(value, dict) and "dir" in value):
            errors.append(f"{run.name}: run.dir is decided by the study: `dir:` or --dir moves all of it.")
        elif head not in sections:
            errors.append(
                f"{run.name}: {key}: a recipe has no section {head!r}.{nearest(head, sections)} "
                f"Its sections: {', '.join(sections)}."
            )
        if isinstance(value, dict) and str(value.get("path")).startswith(FROM):
            errors.append(f"{run.name}: write `{MODEL}: {value['path']}`, a dotted key, to start from a run.")
        if run.seed is not None and key == "run.seed" and value != run.seed:
            errors.append(f"{run.name}: run.seed is given twice, by `seeds` and by an override. Remove one.")
    return errors


def _linked(run: StudyRun, runs: Sequence[StudyRun]) -> StudyRun:
    """The run with ``model.path: run:NAME`` taken out of its overrides and put in `source`."""
    path = next((value for key, value in reversed(run.overrides) if key == MODEL), None)
    if not isinstance(path, str) or not path.startswith(FROM):
        return run
    source = _source(run, path.removeprefix(FROM), runs)
    rest = tuple(pair for pair in run.overrides if pair[0] != MODEL)
    return replace(run, overrides=rest, source=source)


def _source(run: StudyRun, name: str, runs: Sequence[StudyRun]) -> str:
    matching = [r for r in runs if name in (r.name, r.group)]
    if len(matching) > 1:  # one of several seeds: the one with the same seed
        matching = [r for r in matching if run.seed is not None and r.seed == run.seed] or matching
    where = f"{run.name}: model.path: run:{name}"
    if not matching:
        names = [r.name for r in runs if r.name != run.name]
        raise RecipeError(
            f"{where}: no run of this study is called {name!r}.{nearest(name, names)} "
            f"There are: {', '.join(names) or 'no others'}."
        )
    if len(matching) > 1:
        raise RecipeError(
            f"{where} could be {', '.join(r.name for r in matching)}. Name one of them, or give this run the "
            "same `seeds`."
        )
    if matching[0].algorithm == EVALUATE:
        raise RecipeError(f"{where}: {name!r} is an evaluation and makes no model. Name a run that trains.")
    return matching[0].name


def _ordered(runs: Sequence[StudyRun]) -> list[StudyRun]:
    """The runs, each after its source, otherwise in the file's order."""
    sorter = TopologicalSorter({run.name: [run.source] if run.source else [] for run in runs})
    try:
        sorter.prepare()
    except CycleError as error:
        raise RecipeError(
            f"these runs start from each other's results: {' -> '.join(error.args[1])}. One of them must "
            "start from a model."
        ) from error
    left, done, found = list(runs), set(), []
    while left:
        run = next(r for r in left if r.source is None or r.source in done)
        left.remove(run)
        done.add(run.name)
        found.append(run)
    return found
