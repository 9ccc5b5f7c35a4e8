"""Problems from a dataset by name: a registered dataset, a file, or a Hub id, with columns mapped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from trlmath.components import resolve
from trlmath.data.files import READERS, read_rows
from trlmath.data.traces import FIELDS, sources, to_problem
from trlmath.errors import DataError, PluginError, TrlmathError, nearest
from trlmath.plugins import registry
from trlmath.targets import is_path
from trlmath.types import Problem

Split = Literal["train", "eval"]
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_OPTIONS = ("config", "split", "revision")


def load_problems(
    spec: Any, split: Split = "train", columns: Mapping[str, str] | None = None
) -> list[Problem]:
    """Return the problems of one split, in the dataset's order.

    Args:
        spec: a name, or an object with ``name`` and ``options`` (a recipe's ``data.train``): a
            registered dataset, ``module:attr``, ``file.py:attr``, a file (.jsonl .json .parquet .csv),
            or a Hub id ``owner/name`` (options ``config``, ``split``, ``revision``).
        split: asked of registered datasets, and the default Hub split (``test`` for ``eval``).
        columns: Problem field -> column, e.g. ``{"question": "problem", "answer": "gold"}``; also ``prompt``
            and ``messages`` (see `trlmath.data.traces`). Other columns are kept in `metadata`.

    Raises:
        DataError: unreadable or empty, no question column, a column that `columns` names is not there.
        PluginError: no dataset of that name.
    """
    name, options = (spec, {}) if isinstance(spec, str) else (spec.name, dict(spec.options))
    columns = dict(columns or {})
    if name in registry().names("dataset") or is_path(name):
        problems = _from_component(name, options, split)
        return problems if not columns else _mapped((_row(p) for p in problems), columns, name, split)
    if _is_file(name):
        if options:
            raise DataError(f"a dataset file takes no options, but {name!r} is given {', '.join(options)}.")
        rows = read_rows(Path(name).expanduser())
    elif _HUB_ID.fullmatch(name):
        rows = _from_hub(name, options, split)
    else:
        known = registry().names("dataset")
        raise DataError(
            f"no dataset is called {name!r}.{nearest(name, known)} Registered: {', '.join(known)}; "
            f"or give a file ({', '.join(READERS)}), module:attr, file.py:attr, or a Hub id owner/name."
        )
    return _mapped(rows, columns, name, split)


def _is_file(name: str) -> bool:
    path = Path(name).expanduser()
    if path.exists() or path.suffix in READERS:
        return True
    # One slash and nothing on disk may be a Hub id; anything else with a slash is a path.
    return name.startswith((".", "/", "~")) or name.count("/") > 1


def _from_component(name: str, options: dict[str, Any], split: Split) -> list[Problem]:
    component = resolve("dataset", name)
    dataset = component.build(options)
    who = f"dataset {name!r} ({component.origin})"
    if not hasattr(dataset, "load"):
        raise PluginError(f"{who} is a {type(dataset).__name__} without a method load(split).")
    try:
        problems = list(dataset.load(split))
    except TrlmathError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{who} raised {type(error).__name__} in load({split!r}): {error}") from error
    wrong = next((p for p in problems if not isinstance(p, Problem)), None)
    if wrong is not None:
        raise PluginError(f"{who} yields {type(wrong).__name__}, not trlmath.Problem.")
    if not problems:
        raise DataError(f"{who} has no row in its split {split!r}.")
    return problems


def _from_hub(name: str, options: dict[str, Any], split: Split) -> list[dict[str, Any]]:
    unknown = [key for key in options if key not in _HUB_OPTIONS]
    if unknown:
        raise DataError(
            f"a Hub dataset has no option {unknown[0]!r}.{nearest(unknown[0], _HUB_OPTIONS)} "
            f"Its options: {', '.join(_HUB_OPTIONS)}."
        )
    from datasets import load_dataset

    wanted = options.get("split") or ("train" if split == "train" else "test")
    try:
        table = load_dataset(name, options.get("config"), split=wanted, revision=options.get("revision"))
    except Exception as error:
        raise DataError(
            f"the Hub dataset {name!r} (split {wanted!r}) cannot be loaded: {type(error).__name__}: {error} "
            "Check its name and the network, set options: {config, split}, or give a local file. "
            f"If {name!r} is meant as a file, there is none at {Path(name).absolute()}."
        ) from error
    return list(table)


def _row(problem: Problem) -> dict[str, Any]:
    given = {field: getattr(problem, field) for field in FIELDS}
    return {**problem.metadata, **{field: value for field, value in given.items() if value is not None}}


def _mapped(
    rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str], name: str, split: Split
) -> list[Problem]:
    """Turn rows into problems; `columns` maps fields to columns, the rest maps to itself."""
    rows = list(rows)
    if not rows:
        raise DataError(f"the dataset {name!r} is empty: it has no row.")
    available = list(dict.fromkeys(column for row in rows for column in row))
    if split == "eval":  # the mapping is the training data's too, and held-out problems need no traces
        columns = {f: c for f, c in columns.items() if c in available or f in ("question", "answer")}
    source = sources(available, columns, name)
    return [to_problem(row, source, name, index) for index, row in enumerate(rows)]


def require_answers(problems: list[Problem], name: str) -> None:
    """Raise DataError when a problem has no gold answer, so that no rollout of it could be scored."""
    missing = [
        index
        for index, problem in enumerate(problems)
        if problem.answer is None or not problem.answer.strip()
    ]
    if not missing:
        return
    if len(missing) == len(problems):
        columns = sorted({key for problem in problems for key in problem.metadata})
        raise DataError(
            f"the dataset {name!r} has no answer in any of its {len(problems)} rows. Map the column that "
            f"holds it: data.columns: {{answer: <column>}}.{nearest('answer', columns)} "
            f"Other columns: {', '.join(columns) or 'none'}."
        )
    raise DataError(
        f"the dataset {name!r} has no answer in {len(missing)} of {len(problems)} rows (first: row "
        f"{missing[0]}). Add the filter gradable_gold to `filters` to drop them, or fill them in."
    )


def column_names(problems: Iterable[Problem]) -> list[str]:
    """Return the columns that rewards can name: fields that some problem has, and metadata."""
    names: dict[str, None] = {}
    for problem in problems:
        names |= dict.fromkeys(_row(problem))
    return list(names)
