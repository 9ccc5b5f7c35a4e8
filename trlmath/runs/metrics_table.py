"""The one table of all metrics: what each is, its unit, and what it means when it moves.

Its rows are in `metrics_learning` and `metrics_running`; the report's captions and docs/metrics.md come from
it, and a test holds it against what real runs log. A name may hold placeholders:
``train/category/<category>`` stands for one metric a category.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from trlmath.runs.metric import Metric
from trlmath.runs.metrics_learning import LEARNING
from trlmath.runs.metrics_running import RUNNING

TABLE: dict[str, tuple[Metric, ...]] = {**LEARNING, **RUNNING}

# of ``time/``: those that add up to a step, in the order they happen
PHASES = ("data", "sync", "generate", "grade", "old_logprobs", "reference", "update", "optimizer")

# parts of the shipped rewards; any other `train/<part>` is told only where a run's rewards report it
PARTS = frozenset({"format", "answer", "both"})
_ANY_PART = "train/<part>"


def all_metrics() -> Iterator[Metric]:
    """Every metric of the table, in its order."""
    for metrics in TABLE.values():
        yield from metrics


def find(name: str, parts: Collection[str] = ()) -> Metric | None:
    """Return the metric that a logged name is, or None when the table does not hold it.

    Args:
        parts: further parts that the run's rewards report, beside the shipped ones.
    """
    head, _, rest = name.partition("/")
    if re.fullmatch(r"eval_[A-Za-z0-9_-]+", head):
        name = f"eval/{rest}"
    for metric in all_metrics():
        if metric.name == _ANY_PART:
            if name.removeprefix("train/") in parts:
                return metric
        elif metric.matches(name):
            return metric
    return None


def markdown() -> str:
    """docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "Each line of a run's `metrics.jsonl` is one JSON object with `step` and the metrics below, null",
        "where a number was NaN. A step's line is written when the step has ended; an evaluation writes a",
        "line of its own. Trackers and the report show the same names. Over several processes every number",
        "is of all of them together, unless it says otherwise.",
        "",
        "This page is generated from the table in `trlmath/runs/metrics_table.py` by `make docs`.",
    ]
    for group, metrics in TABLE.items():
        lines += ["", f"## {group}", "", "| metric | formula | unit | when it moves |", "|---|---|---|---|"]
        for metric in metrics:
            cells = (f"`{metric.name}`", metric.formula, metric.unit, metric.moves)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
