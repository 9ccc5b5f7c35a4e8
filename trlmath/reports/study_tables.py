"""The table of a study, in the terminal and as markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from trlmath.evaluation.report import Rate
from trlmath.reports.tables import PARTS
from trlmath.studies.results import Measured, Row, RunResult

WIDE = 170
NARROW = 130
LEAN = 100
LEFT = ("run", "algorithm", "to")
HEAD = ("run", "algorithm", "problems", *PARTS, "entropy", "tokens", "seconds")


def study_table(rows: Sequence[Row], setting: str, part: str, width: int = WIDE) -> Table:
    """One line a run: rates with intervals, and the difference of `part` to another run.

    Below `WIDE` columns the intervals stand under their rates and no algorithm is told; below `NARROW` they
    are whole per cents, without tokens and seconds; below `LEAN` without entropy.
    """
    sizes = dict.fromkeys(str(row.measured.problems) for row in rows if row.measured is not None)
    table = Table(
        title=f"{setting}, {' or '.join(sizes)} held-out problems: % of completions [95 % interval]",
        title_justify="left",
        caption="\n".join(_notes(rows, part)),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    narrow = width < NARROW
    hidden = {
        *(("algorithm",) if width < WIDE else ()),
        *(("tokens", "seconds") if narrow else ()),
        *(("entropy",) if width < LEAN else ()),
        *(("problems",) if len(sizes) == 1 or narrow else ()),  # told in the title
    }
    head = [*HEAD, _last(part), "to"]
    for column in head:
        left = column in LEFT
        if column not in hidden:
            table.add_column(
                column,
                justify="left" if left else "right",
                no_wrap=column not in ("run", "to"),
                overflow="fold",
            )
    for row in rows:
        cells = _cells(row, " " if width >= WIDE else "\n", 0 if narrow else 1)
        shown = [cell for column, cell in zip(head, cells, strict=True) if column not in hidden]
        table.add_row(*map(Text, shown))
    return table


def study_markdown(rows: Sequence[Row], setting: str, part: str) -> str:
    """The same as a markdown table with its notes."""
    head = [*HEAD, _last(part), "to"]
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join("---" if name in LEFT else "---:" for name in head) + "|",
        *("| " + " | ".join(_cells(row, " ")) + " |" for row in rows),
    ]
    notes = "\n".join(f"- {note}" for note in _notes(rows, part))
    return f"## {setting}\n\n" + "\n".join(lines) + f"\n\n{notes}\n"


def history_markdown(results: Sequence[RunResult], setting: str) -> str:
    """Every evaluation of the runs that made more than two, in order; empty where there are none."""
    head = ("run", "evaluation", *PARTS, "entropy", "tokens")
    lines = []
    for result in results:
        told = result.history.get(setting, ())
        for number, measured in enumerate(told if len(told) > 2 else ()):
            cells = [
                result.name if number == 0 else "",
                measured.label.rpartition("/")[0],
                *(_interval(measured.rates.get(part), " ", 1) for part in PARTS),
                "" if measured.entropy is None else f"{measured.entropy:.3f}",
                f"{measured.mean_tokens:.1f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    if not lines:
        return ""
    rule = "|" + "|".join("---" if name in ("run", "evaluation") else "---:" for name in head) + "|"
    return "\n".join(
        [f"## {setting}, evaluation by evaluation\n", "| " + " | ".join(head) + " |", rule, *lines, ""]
    )


def _last(part: str) -> str:
    return f"Δ {part}"


def _cells(row: Row, between: str, digits: int = 1) -> list[str]:
    name = row.name if row.of == 1 else f"{row.name} ({row.runs} of {row.of} seeds)"
    told = row.measured
    if told is None:
        return [name, row.algorithm, "", row.status, *[""] * (len(HEAD) - 2)]
    return [
        name,
        row.algorithm,
        str(told.problems),
        *(_interval(told.rates.get(part), between, digits) for part in PARTS),
        "" if told.entropy is None else f"{told.entropy:.3f}",
        f"{told.mean_tokens:.1f}",
        "" if row.seconds is None else f"{row.seconds:.0f}",
        _interval(row.difference, between, digits, "+"),
        "" if row.difference is None else str(row.against),
    ]


def _interval(rate: Rate | None, between: str, digits: int, sign: str = "") -> str:
    if rate is None:
        return ""
    value = f"{100 * rate.value:{sign}.1f}"
    if math.isnan(rate.low):
        return value  # one seed of several: no interval yet
    return f"{value}{between}[{100 * rate.low:{sign}.{digits}f}, {100 * rate.high:{sign}.{digits}f}]"


def _notes(rows: Sequence[Row], part: str) -> list[str]:
    measured: list[Measured] = [row.measured for row in rows if row.measured is not None]
    notes = [f"rates: {kind}" for kind in dict.fromkeys(m.interval for m in measured)]
    kinds = dict.fromkeys(row.paired for row in rows if row.difference is not None)
    notes += [f"{_last(part)}: {part} minus that of the run under `to`; {kind}" for kind in kinds]
    notes += [f"{row.name}: {row.paired}" for row in rows if row.paired and row.difference is None]
    if measured:
        notes.append(
            "entropy: nats a token, of the completions drawn; tokens: mean length of a completion; seconds: "
            "the whole run"
        )
    return notes
