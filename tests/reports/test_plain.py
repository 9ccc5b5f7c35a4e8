"""Text of data and plugins in the terminal: no markup, no control sequence, no crash."""

from __future__ import annotations

import io

from rich.table import Table

from trlmath.evaluation import regrade
from trlmath.evaluation.diff import compare
from trlmath.evaluation.report import summarise
from trlmath.evaluation.sample import Sample, problem_key
from trlmath.reports import compared
from trlmath.reports.console import ConsoleDisplay
from trlmath.reports.plain import PlainConsole

ODD = "[bold]x[/red] \x1b[31mred\x07 数学"
SHOWN = "[bold]x[/red] \\x1b[31mred\\x07 数学"


def row(right):
    return Sample(
        "s", 0, 0, problem_key(ODD, ODD), ODD, ODD, "", ODD, 3, "stop", float(right), {"both": float(right)},
        ODD, ODD, ODD, metadata={"level": ODD},
    )  # fmt: skip


def printed(write):
    stream = io.StringIO()
    write(PlainConsole(file=stream, width=200))
    return stream.getvalue()


def test_tables_and_lines():
    table = Table(title=ODD)
    table.add_column(ODD)
    table.add_row(ODD)
    for what in (ODD, table):
        text = printed(lambda console, what=what: console.print(what))
        assert SHOWN in text
        assert "\x1b" not in text


def test_an_evaluation_a_comparison_and_a_regrading_of_odd_text(monkeypatch):
    report = summarise("s", [row(1)], by=["level"])
    assert SHOWN in printed(lambda console: ConsoleDisplay(console).evaluation(report))
    for write in (
        lambda: compared.print_difference(compare([row(1)], [row(0)]), ODD, ODD, 5),
        lambda: compared.print_regraded(regrade.Regraded(((row(1), row(0)),)), 5),
    ):
        stream = io.StringIO()
        monkeypatch.setattr(compared, "PlainConsole", lambda: PlainConsole(file=stream, width=300))  # noqa: B023
        write()
        assert SHOWN in stream.getvalue()
        assert "\x1b" not in stream.getvalue()
