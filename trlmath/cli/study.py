"""``trlmath study``: several runs in one command, and one table of what came out."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from trlmath.cli.launch import leave, quiet_libraries, readable_errors

if TYPE_CHECKING:
    from trlmath.reports.study_console import StudyConsole
    from trlmath.studies.study import Study

PARTIAL = 1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("study")
@click.argument("overrides", nargs=-1, metavar="[[RUN:]KEY.SUBKEY=VALUE]...")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs at once.")
@click.option("--dry-run", is_flag=True, help="Check every recipe, show the plan, start nothing.")
@click.option("--show", is_flag=True, help="Show the table of what is finished; start nothing.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the study writes.  [default: runs/<study>]",
)
def study(
    study: str, overrides: tuple[str, ...], jobs: int, dry_run: bool, show: bool, directory: Path | None
) -> None:
    """Run a study: a YAML file with a list of runs (or a shipped one, such as nano/study).

    Every recipe is checked before anything starts. The same command goes on where it was interrupted;
    finished runs are not repeated. An override is for every run, or with RUN: in front for the runs
    of that name or algorithm.

    \b
    trlmath study nano/study --jobs 2
    trlmath study my.yaml --dry-run
    trlmath study nano/road --dir runs/try evaluation.limit=32 grpo:trainer.max_steps=4
    """
    quiet_libraries()
    signal.signal(signal.SIGTERM, _interrupt)
    with readable_errors():
        from trlmath.reports.study_console import StudyConsole
        from trlmath.studies.study import Study

        display = StudyConsole()
        planned = Study(study, overrides, directory)
        if show:
            display.table(planned)
            return
        display.plan(planned)
        if dry_run:
            return
        try:
            planned.run(display, jobs)
        except KeyboardInterrupt:
            _tell(planned, display)
            raise
        _tell(planned, display)
        if planned.failed:
            display.note(f"not finished: {', '.join(planned.failed)}. The same command tries them again.")
            leave(PARTIAL)


def _tell(study: Study, display: StudyConsole) -> None:
    """Print the table, write it as markdown for all settings, and one page with the curves of all runs."""
    from trlmath.reports.page import write_report
    from trlmath.reports.study_console import short
    from trlmath.reports.study_tables import history_markdown, study_markdown
    from trlmath.studies.schema import study_name

    display.table(study)
    part, tables = study.spec.compare.part, study.tables()
    if tables:
        told = [study_markdown(rows, setting, part) for setting, rows in tables.items()]
        told += [history for name in tables if (history := history_markdown(study.results(), name))]
        study.write_text("table.md", "\n".join(told))
    finished = [run for run in study.results() if run.status == "finished"]
    trained = [run.directory for run in finished if run.algorithm != "evaluate"]
    if trained:
        write_report(trained, study.directory / "report.html", study_name(study.file))
    page = "report.html, " if trained else ""
    display.note(f"everything is in {short(study.directory)}: table.md, {page}study.json, logs/")


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
