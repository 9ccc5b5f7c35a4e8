"""The terminal view of a study: its plan, the running runs with their last line, and the table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trlmath.errors import visible
from trlmath.reports.plain import PlainConsole
from trlmath.reports.study_tables import WIDE, study_table
from trlmath.studies.study import Study


class StudyConsole:
    """Live lines of the running runs in a terminal; elsewhere only what starts and ends is told."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or PlainConsole()
        if console is None and not self.console.is_terminal:
            self.console.width = WIDE  # a log or a pipe has no width of its own
        self._live: Live | None = None

    def note(self, text: str) -> None:
        """Print one line; markup in it is shown as it is."""
        self.console.print(text, markup=False, soft_wrap=True)

    def running(self, lines: Sequence[tuple[str, float, str]]) -> None:
        """Show the running ones below what was printed; none takes the view away."""
        if not self.console.is_terminal:
            return
        if self._live is None and lines:
            self._live = Live(console=self.console, transient=True, refresh_per_second=4)
            self._live.start()
        if self._live is not None and not lines:
            self._live.stop()
            self._live = None
        elif self._live is not None:
            self._live.update(_running(lines, self.console.width))

    def plan(self, study: Study) -> None:
        """Print the runs, what each starts from and changes, and whether it is there already."""
        runs = [checked.run for checked in study.runs]
        common = [pair for pair in runs[0].arguments() if all(pair in run.arguments() for run in runs)]
        names, algorithms = max(len(r.name) for r in runs), max(len(r.algorithm) for r in runs)
        states = max(len(state.why) for state in study.states.values())
        self.note(f"{short(study.file.resolve())}: {len(runs)} runs, written to {short(study.directory)}")
        if common and len(runs) > 1:
            self.note(f"all of them with {' '.join(common)}")
        for run in runs:
            start = f"from {run.source}, " if run.source else ""
            own = [pair for pair in run.arguments() if pair not in common or len(runs) == 1]
            self.note(
                f"  {run.name:<{names}}  {run.algorithm:<{algorithms}}  "
                f"{study.states[run.name].why:<{states}}  {start}{' '.join([run.recipe, *own])}"
            )

    def table(self, study: Study) -> None:
        """Print the table of the compared setting."""
        tables = study.tables()
        if not tables:
            self.note("no run is finished: there is nothing to tell yet.")
            return
        setting, rows = next(iter(tables.items()))
        part, width = study.spec.compare.part, self.console.width
        self.console.print(study_table(rows, setting, part, width))


def _running(lines: Sequence[tuple[str, float, str]], width: int) -> Table:
    table = Table.grid(padding=(0, 2))
    for name, seconds, line in lines:
        clock = f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
        room = max(10, width - len(name) - len(clock) - 6)
        table.add_row(Text(name), Text(clock), Text(visible(line)[:room], style="dim"))
    return table


def short(path: Path) -> str:
    """A path as a person would write it: relative where it is below the working directory."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
