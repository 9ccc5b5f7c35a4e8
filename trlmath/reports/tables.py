"""The tables of one evaluation: rates, categories with what helps, and breakdowns by field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rich.table import Table

from trlmath.evaluation.advice import advice
from trlmath.evaluation.report import EvaluationReport, Lengths, Rate

PARTS = ("format", "answer", "both")
# more values of a field than this are told in report.json only
SLICES = 24


def evaluation_tables(report: EvaluationReport) -> Iterator[Table]:
    """Yield the tables of one evaluation, in reading order."""
    yield _rates(report)
    yield _categories(report)
    for field, slices in report.by.items():
        table = Table(title=f"{report.name}, by {field} (n problems)", title_justify="left")
        table.add_column(field, overflow="fold")
        table.add_column("n", justify="right", no_wrap=True)
        parts = _shown(next(iter(slices.values())).rates) if slices else []
        for part in parts:
            table.add_column(part, justify="right", no_wrap=True)
        for value, found in list(slices.items())[:SLICES]:
            table.add_row(value, str(found.problems), *(interval(found.rates[p]) for p in parts))
        if len(slices) > SLICES:
            table.caption = f"{len(slices) - SLICES} more values in report.json"
        yield table


def _rates(report: EvaluationReport) -> Table:
    table = Table(
        title=f"{report.name}: {report.problems} problems, {report.completions} completions",
        title_justify="left",
        caption=f"%, with the {report.interval}",
        caption_justify="left",
    )
    table.add_column("", no_wrap=True)
    table.add_column(report.name, justify="right", no_wrap=True)
    for part in _shown(report.rates):
        table.add_row(f"{part} rate", interval(report.rates[part]))
    if report.mean_reward is not None:
        told = report.mean_reward
        table.add_row("mean reward", f"{told.value:.3f} [{told.low:.3f}, {told.high:.3f}]")
    for part, rates in report.pass_at_k.items():
        for k, rate in enumerate(rates, start=1):
            if k > 1 and (k == len(rates) or k & (k - 1) == 0):
                table.add_row(f"pass@{k}, {part}", interval(rate))
    for k, rate in report.majority_at_k.items():
        if k > 1:
            table.add_row(f"maj@{k}, answer", interval(rate))
    table.add_section()
    for name, lengths in report.lengths.items():
        if lengths.completions:
            table.add_row(f"tokens, {name} (mean; p10 p50 p90 p99)", _lengths(lengths))
    if not math.isnan(report.truncated):
        table.add_row("truncated", f"{100 * report.truncated:.1f}")
    if report.entropy is not None:
        table.add_row("entropy, nats a token (-log p of sampled)", f"{report.entropy:.3f}")
    if report.tokens_per_second:
        table.add_row("tokens per second", f"{report.tokens_per_second:,.0f}")
    return table


def _categories(report: EvaluationReport) -> Table:
    outcomes = "  ".join(f"{name} {count}" for name, count in report.outcomes.items())
    table = Table(
        title=f"{report.name}: what happened ({outcomes})",
        title_justify="left",
        caption=f"categories add up to {sum(report.categories.values())} completions",
        caption_justify="left",
    )
    table.add_column("category", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("%", justify="right", no_wrap=True)
    table.add_column("what it usually means: what helps")
    for category, count in report.categories.items():
        share = 100 * count / max(report.completions, 1)
        table.add_row(category, str(count), f"{share:.1f}", advice(category))
    return table


def _shown(rates: Mapping[str, Rate]) -> list[str]:
    return [p for p in PARTS if p in rates] or list(rates)


def _lengths(lengths: Lengths) -> str:
    told = " ".join(f"{value:.0f}" for value in lengths.quantiles.values())
    return f"{lengths.mean:.1f}; {told}"


def interval(rate: Rate | None) -> str:
    """A rate in %, with its interval."""
    return "" if rate is None else f"{100 * rate.value:.1f} [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"
