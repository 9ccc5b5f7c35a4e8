"""How commands print: text of data, models and plugins is shown to the terminal, never obeyed by it."""

from __future__ import annotations

import json
import sys
import traceback
from types import TracebackType
from typing import Any

import click

from trlmath.errors import visible
from trlmath.secrets import hidden


def echo(text: object = "", err: bool = False, nl: bool = True) -> None:
    """Print `text` with control characters as escapes and secrets masked; on standard error with `err`."""
    click.echo(visible(text), err=err, nl=nl)


def echo_json(value: Any, indent: int | None = None) -> None:
    """Print JSON; what a terminal would obey stands as JSON's own escapes, so that programs read the same."""
    text = hidden(json.dumps(value, ensure_ascii=False, indent=indent))
    click.echo("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def guard_tracebacks() -> None:
    """From here on the traceback of an error that nobody expected is shown like any other text.

    What raised it may have quoted a completion, or the address of a server with a password in it.
    """
    sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    sys.stderr.write(visible("".join(traceback.format_exception(kind, error, trace))))
