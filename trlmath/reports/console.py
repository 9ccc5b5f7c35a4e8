"""The terminal view of a run: progress bars and the table of before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.table import Table
from rich.text import Text

from trlmath.data.shown import ShownRow
from trlmath.evaluation.report import EvaluationReport
from trlmath.reports.plain import PlainConsole
from trlmath.reports.tables import PARTS, evaluation_tables, interval
from trlmath.reports.trace_rows import print_rows

# columns of a terminal from which a bar may be long
WIDE = 120


class ConsoleDisplay:
    """Live bars in a terminal; plain lines, one every few percent, where output is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or PlainConsole()

    def note(self, text: str) -> None:
        """Print one line; markup in it is shown as it is."""
        self.console.print(text, markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[..., None]]:
        """Show progress of `what`; yields ``advance(count, **numbers)``."""
        if not self.console.is_terminal:
            yield _Lines(self, what, total).advance
            return
        bar = 24 if self.console.width >= WIDE else 4
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=bar),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            Times(),
        )
        room = self.console.width - len(f"{what} {'=' * bar} {total}/{total}  {_times(0, 0)}")
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(what, total=total, numbers="")

            def advance(count: int = 1, **numbers: float | str) -> None:
                if numbers:
                    progress.update(task, numbers=fitting(numbers, room))
                progress.update(task, advance=min(count, total - progress.tasks[0].completed))

            yield advance

    def rows(self, shown: Sequence[ShownRow]) -> None:
        """Print rows of training data: what is given, trained and padded."""
        print_rows(self.console, shown)

    def evaluation(self, report: EvaluationReport) -> None:
        """Print one evaluation: rates, categories with what helps, breakdowns."""
        for table in evaluation_tables(report):
            self.console.print(table)

    def comparison(self, before: Sequence[EvaluationReport], after: Sequence[EvaluationReport]) -> None:
        """Print the rates before and after, with intervals."""
        if not before and not after:
            return
        problems = before[0].problems if before else after[0].problems
        table = Table(
            title=f"{problems} held-out problems: % of completions [95 % interval]", title_justify="left"
        )
        table.add_column("sampling", no_wrap=True)
        table.add_column("rate", no_wrap=True)
        for column in ("before", "after", "change"):
            table.add_column(column, justify="right", no_wrap=True)
        for first, last in zip(before, after, strict=True):
            parts = [p for p in PARTS if p in last.rates] or list(last.rates)
            for i, part in enumerate(parts):
                old, new = first.rates.get(part), last.rates[part]
                change = f"{100 * (new.value - old.value):+.1f}" if old else ""
                label = last.name.split("/")[-1] if i == 0 else ""
                table.add_row(
                    label, part, interval(old), interval(new), change, end_section=i + 1 == len(parts)
                )
        self.console.print(table)


class Times(ProgressColumn):
    """Time since the start and the time that is probably left."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """See `ProgressColumn`."""
        return Text(_times(task.finished_time if task.finished else task.elapsed, task.time_remaining))


def _times(elapsed: float | None, left: float | None) -> str:
    rest = "-:--:--" if left is None else str(timedelta(seconds=int(left)))
    return f"{timedelta(seconds=int(elapsed or 0))} elapsed, {rest} left"


def fitting(numbers: Mapping[str, float | str], room: int) -> str:
    """As many of `numbers` as `room` characters hold: speed and the first one before the others."""
    first = list(numbers)[:1]
    kept: dict[str, float | str] = {}
    for name in dict.fromkeys(["tok/s", *first, *numbers]):
        if name in numbers and len(_numbers({**kept, name: numbers[name]})) <= room:
            kept[name] = numbers[name]
    return _numbers({name: value for name, value in numbers.items() if name in kept})


def _numbers(numbers: Mapping[str, float | str]) -> str:
    shown = []
    for name, value in numbers.items():
        text = value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
        shown.append(f"{name} {text}")
    return "  ".join(shown)


class _Lines:
    """Progress as plain lines, for logs and pipes: about twenty of them a bar."""

    def __init__(self, display: ConsoleDisplay, what: str, total: int) -> None:
        self.display, self.what, self.total, self.done, self.said = display, what, total, 0, 0

    def advance(self, count: int = 1, **numbers: float | str) -> None:
        self.done = min(self.done + count, self.total)
        if self.done == self.total or self.done - self.said >= max(self.total / 20, 1):
            self.said = self.done
            self.display.note(f"{self.what}  {self.done}/{self.total}  {_numbers(numbers)}".rstrip())
