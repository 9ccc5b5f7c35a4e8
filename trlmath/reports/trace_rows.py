"""Rows with what is given, trained and padded in three colours, and named, for where there is no colour."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trlmath.data.shown import ShownRow

STYLES = {"given": "cyan", "trained": "bold green", "padding": "bright_black"}


def print_rows(console: Console, rows: Sequence[ShownRow]) -> None:
    """Print each row; the name of a kind stands in a column of its own, where no text of a row reaches."""
    for row in rows:
        total = row.given_tokens + row.trained_tokens
        title = f"row {row.number}: {total} tokens, {row.trained_tokens} trained"
        if not row.ends:
            title += ", cut: no end-of-text"
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, justify="right")
        table.add_column(overflow="fold")
        _add(table, "given", row.given_tokens, row.given)
        _add(table, "trained", row.trained_tokens, row.trained)
        if row.padding_tokens:
            _add(table, "padding", row.padding_tokens, f"{row.padding_tokens} x {row.padding}")
        console.print(Text(title, style="bold"))
        console.print(table)


def _add(table: Table, kind: str, count: int, text: str) -> None:
    style = STYLES[kind]
    table.add_row(Text(kind, style=style), Text(str(count), style=style), Text(text, style=style))
