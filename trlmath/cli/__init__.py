"""The command line: a group whose commands are imported only when called, so that --help is quick."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from trlmath import __version__
from trlmath.cli.echo import echo, guard_tracebacks
from trlmath.errors import TrlmathError

# name -> (module:attribute, one line for --help)
COMMANDS: dict[str, tuple[str, str]] = {
    "data": ("trlmath.cli.data:data", "Look a dataset over; show which tokens SFT would train on."),
    "doctor": ("trlmath.cli.doctor:doctor", "Check whether this machine is ready for a recipe."),
    "evaluate": ("trlmath.cli.evaluate:evaluate", "Measure a model on a dataset; compare two evaluations."),
    "grade": ("trlmath.cli.grade:grade", "Grade an answer or a whole response against a gold answer."),
    "models": (
        "trlmath.cli.models:models",
        "Turn a GGUF file (llama.cpp's) into a model directory.",
    ),
    "plan": ("trlmath.cli.plan:plan", "Estimate a recipe's memory and work, before it runs."),
    "plugins": ("trlmath.cli.plugins:plugins", "List, show, check and make plugins: what recipes can name."),
    "regrade": ("trlmath.cli.regrade:regrade", "Grade saved completions with another reward."),
    "report": ("trlmath.cli.report:report", "Make one HTML page of a run, or of several overlaid."),
    "runs": ("trlmath.cli.runs:runs", "List and show runs, compare two, repeat one."),
    "serve": ("trlmath.cli.serve:serve", "Start a vLLM server that runs can sample from and update."),
    "recipes": ("trlmath.cli.recipes:recipes", "List the shipped recipes, or copy one."),
    "traces": ("trlmath.cli.traces:traces", "Ask a stronger model for worked answers to train on."),
    "study": ("trlmath.cli.study:study", "Run several recipes that belong together; one table."),
}


class LazyGroup(click.Group):
    """A click group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return getattr(import_module(module), attribute)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trlmath")
def cli() -> None:
    """Train mathematical reasoning with TRL: rewards, advantages, filters, prompts and datasets by name."""


def main() -> None:
    """Run the command line; an error of trlmath is printed without a traceback and exits with 1."""
    guard_tracebacks()
    try:
        cli()
    except TrlmathError as error:
        echo(f"error: {error}", err=True)
        sys.exit(1)
