"""The report: one HTML file of one run or several, that needs nothing beside it and no network.

What a model or a plugin wrote is hostile until escaped: the template escapes everything, data goes in as
JSON that cannot end its script element, the page's script sets text and never HTML, control and direction
characters are shown as escapes, and a content policy allows only the page's own scripts, by their hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from trlmath import __version__
from trlmath.errors import DataError, PluginError, RecipeError, visible
from trlmath.evaluation.sample import Sample
from trlmath.hookspecs import RunView
from trlmath.plugins import ask
from trlmath.recipe import parse_recipe
from trlmath.reports.page_charts import axes_of, charts_of
from trlmath.reports.page_rollouts import BUDGET, rollouts_of
from trlmath.reports.page_tables import (
    facts_of,
    ledger_rows,
    outcome_rows,
    recipe_rows,
    tiles_of,
    version_rows,
)
from trlmath.runs.read import StoredRun, read_run

SCRIPTS = ("page.js", "page_charts.js", "page_rollouts.js")


def write_report(paths: Sequence[Path], out: Path | None = None, title: str | None = None) -> Path:
    """Write the page of the runs in `paths` and return where it is.

    Args:
        out: default: ``report.html`` in the run, or in the working directory for several.

    Raises:
        DataError: no run there, or one that cannot be read.
    """
    runs = [read_run(path) for path in paths]
    target = out or (paths[0] / "report.html" if len(paths) == 1 else Path("report.html"))
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    beside.write_text(render(runs, title), encoding="utf-8")
    beside.replace(target)
    return target


def render(runs: Sequence[StoredRun], title: str | None = None) -> str:
    """The page as text."""
    labels = _labels(runs)
    told = []
    rollouts = []
    for number, (run, label) in enumerate(zip(runs, labels, strict=True)):
        samples = _samples(run)
        outcomes = outcome_rows(run, samples)
        told.append(
            {
                "label": label,
                "number": number,
                "status": visible(run.status),
                "error": visible(run.manifest.get("error", "")),
                "facts": facts_of(run),
                "outcomes": outcomes,
                "tiles": tiles_of(outcomes, many=len(runs) > 1),
                "ledger": ledger_rows(run),
                "sections": _sections(run),
                "command": visible(" ".join(map(str, run.manifest.get("command", [])))),
            }
        )
        rollouts += [{"run": number, **row} for row in rollouts_of(run, samples, BUDGET // len(runs))]
    charts, axes = charts_of(runs), axes_of(runs)
    data = {"runs": labels, "charts": charts, "axes": axes, "rollouts": rollouts}
    scripts = [_static("uPlot.iife.min.js"), "\n".join(_static(name) for name in SCRIPTS)]
    return _template().render(
        title=title or (labels[0] if len(runs) == 1 else f"{len(runs)} runs"),
        version=__version__,
        runs=told,
        recipe=recipe_rows(runs),
        versions=version_rows(runs),
        charts=charts,
        axes=list(axes),
        shown=len(rollouts),
        data=Markup(embedded(data)),
        styles=Markup(_static("uPlot.min.css") + _static("page.css")),
        scripts=[Markup(script) for script in scripts],
        policy=_policy(scripts),
    )


def embedded(value: Any) -> str:
    """JSON for a script element: nothing in it can end the element or begin a comment.

    Raises ValueError for NaN and infinities, which are no JSON.
    """
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return visible(value) if isinstance(value, str) else value


def _labels(runs: Sequence[StoredRun]) -> list[str]:
    """The runs' names, told apart by their folders where two are equal."""
    names = [run.name for run in runs]
    full = [str(run.path) for run in runs]
    return [visible(n if names.count(n) == 1 else f) for n, f in zip(names, full, strict=True)]


def _samples(run: StoredRun) -> list[Sample]:
    """Samples of the first and the last evaluation of each setting: there may be millions in between."""
    ends: dict[str, list[str]] = {}
    for row in run.evaluations:
        name = str(row.get("name", ""))
        ends.setdefault(name.split("/")[-1], []).append(name)
    wanted = {name for names in ends.values() for name in (names[0], names[-1])}
    heads = tuple(json.dumps({"setting": name}, ensure_ascii=False)[:-1].encode() for name in wanted)
    file = run.path / "evaluation" / "samples.jsonl"
    file = file if file.is_file() else run.path / "samples.jsonl"
    if not heads or not file.is_file():
        return []
    with file.open("rb") as lines:
        return [
            Sample.from_row(json.loads(line), f"{file}, line {number}")
            for number, line in enumerate(lines, start=1)
            if line.startswith(heads) and line.endswith(b"\n")
        ]


def _sections(run: StoredRun) -> list[tuple[str, str]]:
    """What plugins add: (title, text) pairs, shown as text; a hook that fails is told in its place."""
    try:
        recipe = parse_recipe(dict(run.recipe))
    except RecipeError as error:
        return [("A section is missing", visible(error))]
    sections: list[tuple[str, str]] = []
    for answer in ask("report_sections", run=RunView(run.path, recipe)):
        if isinstance(answer, PluginError):
            sections.append(("A section is missing", visible(answer)))
            continue
        try:
            sections += [(visible(title), visible(text)) for title, text in answer]
        except (TypeError, ValueError) as error:
            why = f"report_sections must return (title, text) pairs: {visible(error)}"
            sections.append(("A section is missing", why))
    return sections


def _policy(scripts: Sequence[str]) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _template() -> Any:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = lambda rate: f"{100 * rate:.1f}"
    environment.filters["signed"] = lambda rate: f"{100 * rate:+.1f}".replace("-", "\u2212")
    return environment.from_string(_static("page.html"))


@cache
def _static(name: str) -> str:
    folder = files("trlmath.reports") / "static"
    try:
        return (folder / name).read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"the file {name} of the report page is missing: reinstall trlmath.") from error
