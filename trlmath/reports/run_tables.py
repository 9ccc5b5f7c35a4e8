"""Runs in the terminal: a list, one run, two compared."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from trlmath.errors import DataError, visible
from trlmath.evaluation.diff import Difference, compare
from trlmath.evaluation.sample import Sample
from trlmath.evaluation.store import read_samples
from trlmath.reports.compared import print_difference
from trlmath.reports.page_tables import facts_of, ledger_rows, outcome_rows
from trlmath.reports.plain import PlainConsole
from trlmath.runs.compare import (
    WINDOW,
    fact_differences,
    last_numbers,
    last_settings,
    recipe_differences,
)
from trlmath.runs.metrics_table import find
from trlmath.runs.read import StoredRun, changed_from_defaults, read_run

_PIPED = 160
# what `runs diff` shows without --all
MAIN = ("train/reward", "train/both", "train/answer", "train/format", "train/loss", "train/entropy",
        "train/completions/mean_length", "train/completions/clipped_ratio", "train/frac_reward_zero_std",
        "train/grad_norm", "time/step", "time/generate", "time/update", "memory/host")  # fmt: skip


def list_row(path: Path) -> dict[str, Any]:
    """One run's row of the list; one that cannot be read says why, and hides no other."""
    try:
        return run_row(read_run(path))
    except DataError as error:
        empty = dict.fromkeys(("recipe", "started", "time", "reward", "before", "after"))
        return {"name": path.name, "status": "unreadable", "steps": 0, **empty, "error": str(error)}


def run_row(run: StoredRun) -> dict[str, Any]:
    """One run as a row of plain data, for the list and its JSON."""
    facts = dict(facts_of(run))
    row: dict[str, Any] = {
        "name": run.name,
        "status": run.status,
        "recipe": run.manifest.get("recipe"),
        "started": facts.get("started"),
        "steps": run.training[-1]["step"] if run.training else 0,
        "time": facts.get("time"),
        "reward": last_numbers(run).get("train/reward"),
        "before": None,
        "after": None,
    }
    for told in run.evaluations:
        rate = (told.get("rates") or {}).get("both")
        if rate and str(told.get("name", "")).split("/")[-1] == "sampled":
            row["after" if row["before"] is not None else "before"] = rate["value"]
    return row


def print_runs(rows: Sequence[dict[str, Any]], folder: str) -> None:
    """Print the list."""
    console = _console()
    table = Table(
        title=f"{len(rows)} run{'' if len(rows) == 1 else 's'} in {visible(folder)}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("run", overflow="fold", min_width=10)
    for name in ("status", "started"):
        table.add_column(name, no_wrap=True)
    for name in ("steps", "time", "reward", "both %"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        started = str(row["started"] or "")[5:]  # the year is in the name, or does not matter
        cells = (row["name"], row["status"], started, row["steps"], row["time"])
        both = " → ".join(_percent(row[name]) for name in ("before", "after") if row[name] is not None)
        table.add_row(*(visible("" if c is None else c) for c in cells), _number(row["reward"], 2), both)
    console.print(table)
    for row in rows:
        if row.get("error"):
            console.print(visible(row["error"]), markup=False, soft_wrap=True)


def print_run(run: StoredRun) -> None:
    """Print one run: facts, results, last metrics, drops, recipe."""
    console = _console()
    console.print(visible(f"{run.path}  {run.status}"), markup=False, soft_wrap=True)
    if run.manifest.get("error"):
        console.print(visible(run.manifest["error"]), markup=False)
    for name, value in facts_of(run):
        console.print(f"  {name:<9}{value}", markup=False, soft_wrap=True)
    results = outcome_rows(run, [])
    if results:
        table = Table(title="% of completions [95 % interval]", title_justify="left")
        for name in ("sampling", "rate", "before", "after"):
            table.add_column(name, no_wrap=True, justify="right" if name in ("before", "after") else "left")
        for row in results:
            table.add_row(row["setting"], row["part"], _interval(row["before"]), _interval(row["after"]))
        console.print(table)
    numbers = last_numbers(run)
    table = Table(title=f"metrics: mean of the last {WINDOW} steps", title_justify="left")
    table.add_column("metric", overflow="fold")
    table.add_column("", justify="right", overflow="fold")
    table.add_column("unit", overflow="fold", max_width=20)  # in 80 columns TRL's names stay whole
    for metric, number in numbers.items():
        known = find(metric)
        if not metric.startswith("eval"):
            table.add_row(visible(metric), _number(number), known.unit if known else "")
    if table.row_count:
        console.print(table)
    for row in ledger_rows(run):
        console.print(f"dropped {row['count']} by {row['filter']}: {row['reason']}", markup=False)
    table = Table(title="recipe: not at its default", title_justify="left")
    for name in ("key", "here", "default"):
        table.add_column(name, overflow="fold")
    for key, (value, default) in changed_from_defaults(run.recipe).items():
        table.add_row(visible(key), visible(value), visible(default))
    console.print(table)


def print_diff(
    first: StoredRun, second: StoredRun, part: str, show: int, everything: bool
) -> dict[str, Difference]:
    """Print what differs between two runs, their metrics, and their last evaluations, paired.

    Returns:
        setting -> the paired comparison.
    """
    console = _console()
    console.print(visible(f"A {first.path}\nB {second.path}"), markup=False, soft_wrap=True)
    for title, rows in (
        ("recipe", recipe_differences(first, second)),
        ("versions, code, data, machine", fact_differences(first, second)),
    ):
        if not rows:
            console.print(f"{title}: the same")
            continue
        table = Table(title=title, title_justify="left")
        for name in ("key", "A", "B"):
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*(visible(cell) for cell in row))
        console.print(table)
    _print_metrics(console, last_numbers(first), last_numbers(second), everything)
    return _print_evaluations(console, first, second, part, show)


def _print_metrics(console: Console, one: dict[str, float], two: dict[str, float], everything: bool) -> None:
    names = [n for n in dict.fromkeys([*one, *two]) if not n.startswith("eval")]
    shown = names if everything else [n for n in MAIN if n in names]
    table = Table(
        title="metrics",
        title_justify="left",
        caption=f"mean of the last {WINDOW} steps"
        + ("" if everything else f"; {len(names) - len(shown)} more with --all"),
        caption_justify="left",
    )
    table.add_column("metric", overflow="fold")
    for name in ("A", "B", "B - A"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in shown:
        both = name in one and name in two
        change = f"{two[name] - one[name]:+.3g}" if both else ""
        table.add_row(visible(name), _number(one.get(name)), _number(two.get(name)), change)
    if table.row_count:
        console.print(table)


def _print_evaluations(
    console: Console, first: StoredRun, second: StoredRun, part: str, show: int
) -> dict[str, Difference]:
    one, two = last_settings(first), last_settings(second)
    compared: dict[str, Difference] = {}
    common = [name for name in one if name in two]
    if not common:
        console.print("evaluations: no setting in common")
        return compared
    old, new = _samples(first), _samples(second)
    for name in common:
        sides = [s for s in old if s.setting == one[name]], [s for s in new if s.setting == two[name]]
        try:
            compared[name] = compare(*sides, part=part)
        except DataError as error:
            console.print(f"{name}: not compared: {visible(error)}", markup=False, soft_wrap=True)
            continue
        labels = visible(f"{first.name}, {one[name]}"), visible(f"{second.name}, {two[name]}")
        print_difference(compared[name], *labels, show)
    return compared


def _console() -> Console:
    console = PlainConsole()
    if not console.is_terminal and "COLUMNS" not in os.environ:  # a pipe has no width
        console.width = _PIPED
    return console


def _samples(run: StoredRun) -> list[Sample]:
    file = run.path / "evaluation" / "samples.jsonl"
    return read_samples(file if file.is_file() else run.path / "samples.jsonl")


def _number(value: float | None, digits: int = 4) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _interval(rate: Any) -> str:
    return (
        "" if not rate else f"{100 * rate['value']:.1f} [{100 * rate['low']:.1f}, {100 * rate['high']:.1f}]"
    )
