"""The terminal view of a run: progress bars and the table of before and after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from trlmath.data.shown import ShownRow
from trlmath.errors import visible
from trlmath.evaluation.display import Watch
from trlmath.evaluation.report import EvaluationReport
from trlmath.reports.bars import Lines, Times, fitting, times_text
from trlmath.reports.live import TrainingView, live_training, sampled_rollout
from trlmath.reports.plain import PlainConsole
from trlmath.reports.tables import PARTS, evaluation_tables, interval
from trlmath.reports.trace_rows import print_rows
from trlmath.types import Group

# columns of a terminal from which a bar may be long
WIDE = 120
# columns of console.log
LOGGED = 110


class ConsoleDisplay:
    """Live bars in a terminal; plain lines, one every few percent, where output is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or PlainConsole()
        self._file: Path | None = None

    def record(self, file: Path) -> None:
        """From here on write everything that is said to `file` too, progress as plain lines."""
        self._file = file

    def note(self, text: str) -> None:
        """Print one line; markup in it is shown as it is."""
        self._print(text, markup=False, soft_wrap=True)

    def _print(self, shown: Any, **options: Any) -> None:
        self.console.print(shown, **options)
        self._write(shown, **options)

    def _log_line(self, text: str) -> None:
        self._write(text, soft_wrap=True)

    def _write(self, shown: Any, **options: Any) -> None:
        if self._file is None:
            return
        plain = PlainConsole(file=StringIO(), width=LOGGED, color_system=None)
        plain.print(shown, **options)
        with self._file.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(plain.file.getvalue())  # type: ignore[attr-defined]

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[..., None]]:
        """Show progress of `what`; yields ``advance(count, **numbers)``."""
        if not self.console.is_terminal:
            yield Lines(self.note, what, total).advance
            return
        logged = Lines(self._log_line, what, total)
        bar = 24 if self.console.width >= WIDE else 4
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=bar),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            Times(),
        )
        room = self.console.width - len(f"{what} {'=' * bar} {total}/{total}  {times_text(0, 0)}")
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(what, total=total, numbers="")

            def advance(count: int = 1, **numbers: float | str) -> None:
                if numbers:
                    progress.update(task, numbers=fitting(numbers, room))
                progress.update(task, advance=min(count, total - progress.tasks[0].completed))
                logged.advance(count, **numbers)

            yield advance

    @contextmanager
    def training(self, what: str, total: int) -> Iterator[Watch]:
        """Show training: a live view in a terminal, plain lines elsewhere."""
        if not self.console.is_terminal:
            yield _TrainingLines(Lines(self.note, what, total), self.note, self.console.width)
            return
        with live_training(self.console, what, total) as (progress, view):
            logged = _TrainingLines(Lines(self._log_line, what, total), self._log_line, LOGGED, view)
            yield _LiveTraining(progress, logged, self.console)

    def report(self, directory: Path) -> None:
        """Make the run's report page; a page that cannot be made is told, and costs nobody the run."""
        from trlmath.reports.page import write_report

        try:
            self.note(f"report   {write_report([directory])}")
        except Exception as error:  # noqa: BLE001  (the run is done and saved: its page may be made later)
            self.note(
                f"report   could not be made ({type(error).__name__}: {visible(error)}); "
                f"`trlmath report {directory}` tries again"
            )

    def rows(self, shown: Sequence[ShownRow]) -> None:
        """Print rows of training data: what is given, trained and padded."""
        print_rows(self.console, shown)

    def evaluation(self, report: EvaluationReport) -> None:
        """Print one evaluation: rates, categories with what helps, breakdowns."""
        for table in evaluation_tables(report):
            self._print(table)

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
        self._print(table)


class _TrainingLines:
    """Training as plain lines."""

    def __init__(
        self, lines: Lines, say: Callable[[str], None], width: int, view: TrainingView | None = None
    ) -> None:
        self.lines, self.say, self.width, self.view = lines, say, width, view or TrainingView()

    def metrics(self, numbers: Mapping[str, float]) -> None:
        """Take in a step's numbers."""
        self.view.metrics(numbers)

    def advance(self, count: int = 1, **numbers: float | str) -> None:
        """Count on, with the view's numbers, the speed, and the step they are of if it is another."""
        more = {name: numbers[name] for name in ("tok/s", "step") if name in numbers}
        self.lines.advance(count, **self.view.line(), **more)

    def rollouts(self, groups: Sequence[Group], step: int) -> None:
        """Say one of a step's rollouts with its grade."""
        for line in sampled_rollout(groups, step, self.width):
            self.say(line)


class _LiveTraining:
    """Training in a terminal, and as plain lines in the log."""

    def __init__(self, progress: Progress, logged: _TrainingLines, console: Console) -> None:
        self.progress, self.logged, self.console = progress, logged, console

    def metrics(self, numbers: Mapping[str, float]) -> None:
        """Take in a step's numbers."""
        self.logged.metrics(numbers)  # the view is one for both

    def advance(self, count: int = 1, **numbers: float | str) -> None:
        """Count on."""
        task = self.progress.tasks[0]
        self.progress.update(task.id, advance=min(count, (task.total or 0) - task.completed))
        self.logged.advance(count, **numbers)

    def rollouts(self, groups: Sequence[Group], step: int) -> None:
        """Show one of a step's rollouts with its grade, above the view."""
        for line in sampled_rollout(groups, step, self.console.width):
            self.console.print(line, markup=False, style="dim" if line.startswith("  reward") else None)
        self.logged.rollouts(groups, step)
