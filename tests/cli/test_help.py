"""Help pages: whole sentences, every option explained, and no word that a person never types."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from trlmath.cli import COMMANDS, cli


def pages(command=cli, words=()):
    """Every command that can be named: (words, command)."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from pages(command.get_command(context, name), (*words, name))


PAGES = dict(pages())


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_help_is_whole_and_every_option_is_explained(words):
    done = CliRunner().invoke(cli, [*words, "--help"], prog_name="trlmath", terminal_width=80)
    assert done.exit_code == 0, done.output
    listed = done.output.partition("Commands:\n")[2]
    assert "..." not in listed, "a command's one line is cut off: give it a short_help"
    for option in PAGES[words].params:
        if isinstance(option, click.Option):
            assert option.help, f"{option.opts[0]} has no help"
            assert not option.help.startswith("[default"), f"{option.opts[0]} tells its default only"


def test_every_command_has_a_line_that_fits():
    for name, (_, line) in COMMANDS.items():
        assert len(name) + len(line) < 76, line


def test_evaluate_hides_its_inner_command_and_lists_the_other():
    done = CliRunner().invoke(cli, ["evaluate", "--help"], prog_name="trlmath")
    assert "Usage: trlmath evaluate [OPTIONS] [KEY.SUBKEY=VALUE]...\n" in done.output
    assert "Commands:\n  diff  Compare two evaluations" in done.output
    wrong = CliRunner().invoke(cli, ["evaluate", "--modle", "nano"], prog_name="trlmath")
    assert "Try 'trlmath evaluate --help'" in wrong.output
