"""The tables of a report page: before and after, the filter ledger, the recipe and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trlmath.errors import DataError, visible
from trlmath.evaluation.diff import compare
from trlmath.evaluation.sample import Sample
from trlmath.recipe.schema import Recipe
from trlmath.runs.read import StoredRun, changed_from_defaults, flat

PARTS = ("both", "answer", "format")
EXAMPLES = 3


def outcome_rows(run: StoredRun, samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Rows ``setting, part, before, after, change`` with intervals; `after` is None with one evaluation.

    The interval of the change is paired over the problems where the samples of both are there.
    """
    settings: dict[str, list[Mapping[str, Any]]] = {}
    for row in run.evaluations:
        settings.setdefault(str(row.get("name", "")).split("/")[-1], []).append(row)
    found = []
    for setting, rows in settings.items():
        first, last = rows[0], rows[-1] if len(rows) > 1 else None
        there = (last or first).get("rates", {})
        for part in [p for p in PARTS if p in there] or list(there):
            found.append(
                {
                    "setting": setting,
                    "part": part,
                    "problems": first.get("problems"),
                    "before": first.get("rates", {}).get(part),
                    "after": last and last["rates"].get(part),
                    "when": last and str(last.get("name", "")).split("/")[0],
                    "change": last and _paired(samples, str(first["name"]), str(last["name"]), part),
                }
            )
    return found


def tiles_of(rows: Sequence[Mapping[str, Any]], many: bool) -> list[Mapping[str, Any]]:
    """The rows to show large: of several runs one each, of one run both and answer of each setting."""
    told = [row for row in rows if row["part"] in ("both", "answer")] or list(rows[:1])
    return told[:1] if many else told


def _paired(samples: Sequence[Sample], first: str, last: str, part: str) -> dict[str, Any] | None:
    old, new = ([s for s in samples if s.setting == name] for name in (first, last))
    if not old or not new:
        return None
    try:
        found = compare(old, new, part=part)
    except DataError:
        return None  # no problem in common: there is no paired change to tell
    told = found.difference
    sure = told.low > 0 or told.high < 0
    return {"value": told.value, "low": told.low, "high": told.high, "p": found.p_value, "sure": sure}


def ledger_rows(run: StoredRun) -> list[dict[str, Any]]:
    """Drops counted by moment, filter and reason, most first, each with a few questions."""
    counts: dict[tuple[str, str, str], list[str]] = {}
    for row in run.ledger:
        key = tuple(str(row.get(name, "")) for name in ("moment", "filter", "reason"))
        counts.setdefault(key, []).append(str(row.get("question", "")))  # type: ignore[arg-type]
    return [
        {
            "moment": visible(moment),
            "filter": visible(name),
            "reason": visible(reason),
            "count": len(questions),
            "examples": [visible(" ".join(q.split()))[:160] for q in dict.fromkeys(questions)][:EXAMPLES],
        }
        for (moment, name, reason), questions in sorted(counts.items(), key=lambda item: -len(item[1]))
    ]


def recipe_rows(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Keys not at their default in some run: ``key, default, values, differs`` (between the runs)."""
    changed, known = [changed_from_defaults(run.recipe) for run in runs], flat(Recipe().to_dict())
    flats = [flat(run.recipe) for run in runs]
    keys = [key for key in dict.fromkeys(key for c in changed for key in c) if key != "run.dir"]
    rows = []
    for key in sorted(keys, key=lambda k: k.startswith("run.")):
        values = [f.get(key) for f in flats]
        rows.append(
            {
                "key": visible(key),
                "default": _shown(known[key]) if key in known else "—",
                "values": [_shown(value) for value in values],
                "differs": any(value != values[0] for value in values),
            }
        )
    return sorted(rows, key=lambda row: not row["differs"])


def facts_of(run: StoredRun) -> list[tuple[str, str]]:
    """What to know of a run at a glance, from its manifest."""
    manifest, recipe = run.manifest, flat(run.recipe)
    rows, summary = manifest.get("rows") or {}, manifest.get("summary") or {}
    engine = manifest.get("engine")
    data = recipe.get("data.train.name")
    facts = [
        ("model", recipe.get("model.path")),
        ("data", f"{data}, {rows['train']:,} rows" if data and rows.get("train") else data),
        ("engine", engine.get("name") if isinstance(engine, Mapping) else engine),
        ("seed", recipe.get("run.seed")),
        ("steps", summary.get("steps") or (run.training[-1]["step"] if run.training else None)),
        ("time", _duration(summary.get("seconds"))),
        ("started", str(manifest.get("started", ""))[:16].replace("T", " ")),
    ]
    return [(name, visible(value)) for name, value in facts if value not in (None, "")]


def version_rows(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """Packages, Python and machine of each run: ``key, values, differs``."""
    flats = [
        {
            "python": run.manifest.get("python", ""),
            "machine": _shown(run.manifest.get("machine", "")),
            "processes": run.manifest.get("processes", ""),
            **{f"{k}": v for k, v in dict(run.manifest.get("packages") or {}).items()},
        }
        for run in runs
    ]
    keys = dict.fromkeys(key for f in flats for key in f)
    return [
        {
            "key": visible(key),
            "values": [visible(f.get(key, "")) for f in flats],
            "differs": len({str(f.get(key)) for f in flats}) > 1,
        }
        for key in keys
    ]


def _duration(seconds: Any) -> str | None:
    if not isinstance(seconds, (int, float)):
        return None
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    )


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return visible(", ".join(f"{key}: {_shown(inner)}" for key, inner in value.items())) or "{}"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else visible(value)
