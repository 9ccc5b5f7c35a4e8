"""What the runs of a study came to: rates with intervals, means over seeds, differences to the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from trlmath.errors import DataError
from trlmath.evaluation.diff import compare, load_side
from trlmath.evaluation.intervals import student
from trlmath.evaluation.report import Rate
from trlmath.runs.read import read_run

SEEDS = "over seeds: mean, with Student's 95 % interval"


@dataclass(frozen=True)
class Measured:
    """One evaluation setting of one finished run; the fields are those of an EvaluationReport.

    `label` is what its samples are saved under, such as ``after/sampled``.
    """

    label: str
    problems: int
    rates: Mapping[str, Rate]
    entropy: float | None
    mean_tokens: float
    truncated: float
    interval: str


@dataclass(frozen=True)
class RunResult:
    """One run.

    Attributes:
        group: runs that differ in the seed only.
        status: ``finished``, ``failed``, ``skipped``, ``interrupted``, or ``not run``.
        seconds: of the run, from start to end.
        settings: the last evaluation of each setting, empty unless it is finished.
        history: all of them, in order.
        seed: of the study's ``seeds``.
        against: the group that it is compared with; None: with nothing.
    """

    name: str
    group: str
    algorithm: str
    directory: Path
    status: str
    seconds: float | None = None
    settings: Mapping[str, Measured] = field(default_factory=dict)
    history: Mapping[str, Sequence[Measured]] = field(default_factory=dict)
    seed: int | None = None
    against: str | None = None


@dataclass(frozen=True)
class Row:
    """One line of the table: a run, or the runs of a group over their seeds.

    Attributes:
        runs: how many are finished.
        of: how many there are.
        measured: None when none is finished.
        against: the row that it is compared with.
        difference: of the compared part to that row, with its interval.
        paired: what kind of interval the difference has, or why there is none.
    """

    name: str
    algorithm: str
    runs: int
    of: int
    status: str
    seconds: float | None = None
    measured: Measured | None = None
    against: str | None = None
    difference: Rate | None = None
    paired: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON; an interval of one run over seeds has no bounds and tells None."""
        return _finite(asdict(self))


def read_result(empty: RunResult) -> RunResult:
    """Return the result with a finished run's evaluations; of one that trained, the last of each setting.

    Raises DataError: files that cannot be read.
    """
    if empty.status != "finished":
        return empty
    run = read_run(empty.directory)
    history: dict[str, list[Measured]] = {}
    for report in run.evaluations:
        history.setdefault(str(report["name"]).rpartition("/")[2], []).append(_measured(report))
    settings = {setting: told[-1] for setting, told in history.items()}
    seconds = run.manifest.get("summary", {}).get("seconds") if empty.seconds is None else empty.seconds
    return replace(empty, seconds=seconds, settings=settings, history=history)


def _measured(report: Mapping[str, Any]) -> Measured:
    return Measured(
        label=str(report["name"]),
        problems=report["problems"],
        rates={part: Rate(**rate) for part, rate in report["rates"].items()},
        entropy=report.get("entropy"),
        mean_tokens=report["mean_tokens"],
        truncated=report["truncated"],
        interval=report["interval"],
    )


def rows(results: Sequence[RunResult], setting: str, part: str) -> list[Row]:
    """The table's lines for one evaluation setting, in the study's order; `part`: what differences are of."""
    groups: dict[str, list[RunResult]] = {}
    for result in results:
        groups.setdefault(result.group, []).append(result)
    found = []
    for name, group in groups.items():
        against = group[0].against
        base = [r for r in groups.get(against or "", []) if setting in r.settings]
        row = replace(_row(name, group, setting), against=against)
        found.append(_with_difference(row, group, base, setting, part))
    return found


def _row(name: str, group: Sequence[RunResult], setting: str) -> Row:
    done = [r for r in group if setting in r.settings]
    missing = [r.status for r in group if r not in done]
    status = ", ".join(dict.fromkeys(missing)) if missing else "finished"
    row = Row(name, group[0].algorithm, len(done), len(group), status)
    if not done:
        return row
    told = [r.settings[setting] for r in done]
    seconds = [r.seconds for r in done if r.seconds is not None]
    return replace(
        row,
        seconds=sum(seconds) / len(seconds) if seconds else None,
        measured=told[0] if len(group) == 1 else _over_seeds(told),
    )


def _over_seeds(told: Sequence[Measured]) -> Measured:
    parts = [part for part in told[0].rates if all(part in m.rates for m in told)]
    entropies = [m.entropy for m in told if m.entropy is not None]
    return Measured(
        label=told[0].label,
        problems=told[0].problems,
        rates={part: _mean([m.rates[part].value for m in told]) for part in parts},
        entropy=sum(entropies) / len(entropies) if len(entropies) == len(told) else None,
        mean_tokens=sum(m.mean_tokens for m in told) / len(told),
        truncated=sum(m.truncated for m in told) / len(told),
        interval=SEEDS,
    )


def _mean(values: Sequence[float], lowest: float = 0.0) -> Rate:
    low, high = student(values)
    if math.isinf(low):
        return Rate(values[0], math.nan, math.nan)
    return Rate(math.fsum(values) / len(values), max(low, lowest), min(high, 1.0))


def _with_difference(
    row: Row, group: Sequence[RunResult], base: Sequence[RunResult], setting: str, part: str
) -> Row:
    """The row with its difference to `base`, over the problems that both hold.

    A run is paired with that of its seed in `base`, or with the only one.
    """
    pairs = []
    for run in group:
        against = [b for b in base if b.seed == run.seed] or (list(base) if len(base) == 1 else [])
        if setting in run.settings and against:
            pairs.append((against[0], run))
    if not pairs:
        return row
    try:
        found = [compare(_samples(b, setting), _samples(r, setting), part) for b, r in pairs]
    except DataError as error:
        return replace(row, paired=f"no difference is told: {error}")
    if len(group) == 1:
        return replace(row, difference=found[0].difference, paired=found[0].interval)
    return replace(row, difference=_mean([d.difference.value for d in found], -1.0), paired=SEEDS)


def _samples(result: RunResult, setting: str) -> list[Any]:
    return load_side(result.directory, result.settings[setting].label)


def settings_of(results: Sequence[RunResult]) -> list[str]:
    """Every evaluation setting that a run tells, in the order first seen."""
    return list(dict.fromkeys(name for result in results for name in result.settings))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
