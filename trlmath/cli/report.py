"""``trlmath report``: one HTML page of a run, or of several overlaid."""

from __future__ import annotations

from pathlib import Path

import click

from trlmath.cli.echo import echo
from trlmath.cli.launch import readable_errors


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The page.  [default: report.html in the run; of several runs, here]",
)
@click.option("--title", help="Of the page.  [default: the run's name]")
def report(runs: tuple[Path, ...], out: Path | None, title: str | None) -> None:
    """Make one HTML page of RUN, a run's directory, finished or still running; several runs are overlaid.

    The page needs no network and nothing beside it: it can be sent as it is.

    \b
    trlmath report runs/nano-grpo-20260131-101500
    trlmath report runs/base runs/without-std --out compared.html
    """
    with readable_errors():
        from trlmath.reports.page import write_report

        echo(f"written: {write_report(list(runs), out, title)}")
