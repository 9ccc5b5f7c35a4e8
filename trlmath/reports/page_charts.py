"""Which curves a report page shows, in which order; what no panel names goes to a folded last section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from trlmath.runs.metrics_table import PHASES, find
from trlmath.runs.read import StoredRun, is_number


@dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: above it.
        metrics: metric -> how the legend calls it; ``prefix/*`` stands for all under the prefix.
        kind: ``lines`` overlays the runs; ``stack`` stacks the metrics, one chart a run.
        evaluations: part whose evaluation points, with intervals, are drawn in as well.
        note: below it, where the metric's own words do not do.
    """

    title: str
    metrics: dict[str, str]
    kind: str = "lines"
    evaluations: str | None = None
    note: str = ""


PANELS = (
    Panel("Reward", {"train/reward": ""}, evaluations="reward"),
    Panel("Right in format and answer", {"train/both": ""}, evaluations="both"),
    Panel("Answer rate", {"train/answer": ""}, evaluations="answer"),
    Panel("Format rate", {"train/format": ""}, evaluations="format"),
    Panel("Loss", {"train/loss": ""}),
    Panel("Entropy", {"train/entropy": "", "train/sampled_entropy": "sampled"}),
    Panel("Length by correctness", {"train/length/right": "right", "train/length/wrong": "wrong"}),
    Panel(
        "Categories",
        {"train/category/*": ""},
        kind="stack",
        note="Shares of the step's rollouts: where the failures go.",
    ),
    Panel(
        "Step time by phase",
        {f"time/{phase}": phase for phase in PHASES},
        kind="stack",
        note="Seconds a step; the phases add up to it.",
    ),
    Panel("Token accuracy", {"train/mean_token_accuracy": ""}),
    Panel("Groups without spread", {"train/frac_reward_zero_std": ""}),
    Panel("Cut off at the limit", {"train/completions/clipped_ratio": ""}),
    Panel("Gradient norm", {"train/grad_norm": ""}),
    Panel("Memory", {"memory/host": "host", "memory/gpu_peak": "GPU, peak"}),
)
POINTS = 1000  # of a line; more are averaged
FIRST = ("both", "answer_only", "format_only")  # from the bottom of the stack


def charts_of(runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    """The panels that have something to show, as plain data for the page.

    Each has ``title``, ``kind``, ``unit``, ``note`` and ``lines``: a list of ``{run, name, x, y}`` with
    the run's number, and ``points`` of evaluations ``{run, setting, x, y, low, high}``.
    """
    shown: set[str] = set()
    charts: list[dict[str, Any]] = []
    for panel in PANELS:
        names = _expanded(panel.metrics, runs)
        shown |= set(names)
        chart = _chart(panel.title, names, runs, panel.kind, panel.note)
        if panel.evaluations:
            chart["points"] = _points(panel.evaluations, runs)
        twin = any(_drawn(chart) == _drawn(other) for other in charts)
        if (chart["lines"] or chart.get("points")) and not twin:
            charts.append(chart)
    for name in _rest(runs, shown):
        charts.append({**_chart(name, {name: ""}, runs, "lines", ""), "more": True})
    return charts


def axes_of(runs: Sequence[StoredRun]) -> dict[str, list[dict[str, list[float]]]]:
    """What curves can be drawn over, beside steps: of each run, tokens and minutes until a step."""
    found: dict[str, list[dict[str, list[float]]]] = {"tokens": [], "minutes": []}
    for run in runs:
        steps, tokens = thinned(*run.series("train/num_tokens"))
        found["tokens"].append({"x": [0, *steps], "y": [0, *map(_short, tokens)]})
        steps, seconds = run.series("time/step")
        steps, spent = thinned(steps, [total / 60 for total in accumulate(seconds)])
        found["minutes"].append({"x": [0, *steps], "y": [0, *map(_short, spent)]})
    return {name: axes for name, axes in found.items() if all(len(axis["x"]) > 1 for axis in axes)}


def _expanded(metrics: dict[str, str], runs: Sequence[StoredRun]) -> dict[str, str]:
    """Wildcards resolved to what was logged, right answers first, then the most frequent."""
    names: dict[str, str] = {}
    for name, label in metrics.items():
        if not name.endswith("*"):
            names[name] = label
            continue
        prefix = name.removesuffix("*")
        found: dict[str, float] = {}
        for run in runs:
            for row in run.metrics:
                for key, value in row.items():
                    if key.startswith(prefix) and is_number(value):
                        found[key] = found.get(key, 0.0) + value
        told = {key: key.removeprefix(prefix) for key in found}
        names |= dict(sorted(told.items(), key=lambda item: (_rank(item[1]), -found[item[0]], item[1])))
    return names


def _rank(category: str) -> int:
    return FIRST.index(category) if category in FIRST else len(FIRST)


def _chart(
    title: str, names: dict[str, str], runs: Sequence[StoredRun], kind: str, note: str
) -> dict[str, Any]:
    lines = []
    for number, run in enumerate(runs):
        for name, label in names.items():
            steps, values = thinned(*run.series(name))
            if steps and (kind == "lines" or any(values)):
                lines.append({"run": number, "name": label, "x": steps, "y": [_short(v) for v in values]})
    known = find(next(iter(names))) if names else None
    unit = known.unit if known else ""
    return {"title": title, "kind": kind, "unit": unit, "note": note or (known.moves if known else ""),
            "lines": lines}  # fmt: skip


def thinned(steps: list[int], values: list[float], most: int = POINTS) -> tuple[list[int], list[float]]:
    """At most `most` points: the means of stretches of equal length, each at its last step."""
    if len(steps) <= most:
        return steps, values
    size = -(-len(steps) // most)
    starts = range(0, len(steps), size)
    return (
        [steps[min(start + size, len(steps)) - 1] for start in starts],
        [sum(part) / len(part) for start in starts if (part := values[start : start + size])],
    )


def _drawn(chart: dict[str, Any]) -> list[Any]:
    """What is seen of a chart: `both` is the reward when nothing else is rewarded, and is drawn once."""
    drawn = [*chart["lines"], *chart.get("points", [])]
    return [(line["run"], line["x"], line["y"]) for line in drawn]


def _points(part: str, runs: Sequence[StoredRun]) -> list[dict[str, Any]]:
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for number, run in enumerate(runs):
        for row in run.evaluations:
            setting = str(row.get("name", "")).split("/")[-1]
            rate = row.get("mean_reward") if part == "reward" else row.get("rates", {}).get(part)
            if not rate or not is_number(rate.get("value")):
                continue
            line = found.setdefault(
                (number, setting),
                {"run": number, "setting": setting, "x": [], "y": [], "low": [], "high": []},
            )
            line["x"].append(row.get("step", 0))
            for key, source in (("y", "value"), ("low", "low"), ("high", "high")):
                line[key].append(_short(rate[source]))
    return list(found.values())


def _rest(runs: Sequence[StoredRun], shown: set[str]) -> list[str]:
    names = dict.fromkeys(name for run in runs for name in run.metric_names())
    return [
        name
        for name in names
        if name not in shown and not name.startswith("eval") and any(run.series(name)[0] for run in runs)
    ]


def _short(value: float) -> float:
    """Five significant digits: what a chart can show, in half the characters."""
    return float(f"{value:.5g}")
