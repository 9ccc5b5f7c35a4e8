"""``trlmath runs list | show | diff | reproduce``: look at runs, compare two, repeat one."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click

from trlmath.cli.echo import echo, echo_json
from trlmath.cli.launch import readable_errors
from trlmath.errors import RecipeError

FOLDER = Path("runs")
RUN = click.Path(path_type=Path)


@click.group()
def runs() -> None:
    """Look at runs, compare two, repeat one. RUN is a run's directory, or its name in ./runs."""


@runs.command("list")
@click.argument("folder", type=RUN, default=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def list_(folder: Path, as_json: bool) -> None:
    """List the runs in FOLDER (default: ./runs), oldest first."""
    with readable_errors():
        from trlmath.reports.run_tables import list_row, print_runs
        from trlmath.runs.read import find_runs

        rows = [list_row(path) for path in find_runs(folder)]
        if as_json:
            echo_json(rows, indent=2)
        else:
            print_runs(rows, str(folder))


@runs.command(short_help="Show a run: results, last metrics, drops, recipe.")
@click.argument("run", type=RUN)
def show(run: Path) -> None:
    """Show RUN: results, last metrics, drops, and what its recipe changes."""
    with readable_errors():
        from trlmath.reports.run_tables import print_run
        from trlmath.runs.read import read_run

        print_run(read_run(locate(run)))


@runs.command(short_help="Compare two runs: recipe, versions, metrics.")
@click.argument("first", type=RUN, metavar="A")
@click.argument("second", type=RUN, metavar="B")
@click.option("--part", default="both", show_default=True, help="Of the reward: what is compared.")
@click.option("--show", default=2, show_default=True, help="Problems that changed to print, each way.")
@click.option("--all", "everything", is_flag=True, help="Every metric, not only the main ones.")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write it all to this JSON file."
)
def diff(first: Path, second: Path, part: str, show: int, everything: bool, out: Path | None) -> None:
    """Compare run A with run B: recipe, versions, metrics, and their last evaluations problem by problem."""
    with readable_errors():
        from trlmath.reports.run_tables import print_diff
        from trlmath.runs.compare import fact_differences, last_numbers, recipe_differences
        from trlmath.runs.read import read_run

        one, two = read_run(locate(first)), read_run(locate(second))
        compared = print_diff(one, two, part, show, everything)
        if out:
            told = {
                "a": str(one.path),
                "b": str(two.path),
                "recipe": recipe_differences(one, two),
                "facts": fact_differences(one, two),
                "metrics": {"a": last_numbers(one), "b": last_numbers(two)},
                "evaluations": {name: found.to_dict() for name, found in compared.items()},
            }
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(told, indent=2, default=str) + "\n", encoding="utf-8")
            echo(f"written: {out}")


@runs.command(short_help="Print the command that repeats a run.")
@click.argument("run", type=RUN)
@click.option("--run", "start", is_flag=True, help="Start it, instead of printing the command.")
@click.option(
    "--dir", "directory", type=RUN, help="Where the repeat writes.  [default: beside RUN, <name>-again]"
)
def reproduce(run: Path, start: bool, directory: Path | None) -> None:
    """Print the command that repeats RUN, and what is not as it was (versions, code).

    With the same versions the repeat is bit-identical on a CPU.
    """
    with readable_errors():
        from trlmath.runs.read import read_run
        from trlmath.runs.reproduce import repeat_of

        stored = read_run(locate(run))
        target = directory or _again(stored.path.resolve())
        if target.exists():
            raise RecipeError(f"{target} is there already. Choose another --dir.")
        repeat = repeat_of(stored, target)
        for what, then, now in repeat.changed:
            echo(f"not as it was: {what} was {then}, is {now}", err=True)
        words = [f"{name}={shlex.quote(value)}" for name, value in repeat.environment.items()]
        go = f"cd {shlex.quote(str(repeat.cwd))} && " if repeat.cwd else ""
        echo(go + " ".join([*words, shlex.join(repeat.command)]))
        if start:
            variables = {**os.environ, **repeat.environment}
            done = subprocess.run(repeat.command, env=variables, cwd=repeat.cwd, check=False)
            sys.exit(done.returncode)


def locate(run: Path) -> Path:
    """The directory of a run given by path, or by name in ``./runs``."""
    return FOLDER / run if not run.exists() and (FOLDER / run).exists() else run


def _again(path: Path) -> Path:
    number = 1
    while (found := path.with_name(f"{path.name}-again{'' if number == 1 else f'-{number}'}")).exists():
        number += 1
    return found
