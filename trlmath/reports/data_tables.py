"""The table of `trlmath data check`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from trlmath.data.audit import Audit
from trlmath.reports.plain import PlainConsole
from trlmath.types import Problem


def print_audit(found: Audit, problems: Sequence[Problem], name: str, against: str | None, show: int) -> None:
    """Print counts with what to do, lengths, and the first `show` rows of each finding."""
    console = PlainConsole()
    table = Table(title=f"{name}: {found.rows} rows", title_justify="left")
    table.add_column("finding")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("what helps")
    golds = "the filter gradable_gold drops them; or repair them"
    table.add_row("gold missing", str(len(found.missing)), golds if found.missing else "")
    table.add_row("gold unreadable", str(len(found.unreadable)), golds if found.unreadable else "")
    table.add_row("gold not equal to itself", str(len(found.unequal)), golds if found.unequal else "")
    looked = "fine for words; broken LaTeX can never match: look at them"
    table.add_row("gold matches as text only", str(len(found.text_only)), looked if found.text_only else "")
    extra = sum(len(group) - 1 for group in found.duplicates)
    table.add_row("duplicate questions", str(extra), "the filter duplicate drops them" if extra else "")
    table.add_row(
        "  with different golds",
        str(len(found.conflicting)),
        "at least one is wrong: look at them" if found.conflicting else "",
    )
    if found.overlap_exact is not None and found.overlap_ngram is not None:
        advice = f"remove them, or the numbers on {against} mean little"
        table.add_row(
            "in held-out, exactly", str(len(found.overlap_exact)), advice if found.overlap_exact else ""
        )
        table.add_row(
            "in held-out, 13 words in a row",
            str(len(found.overlap_ngram)),
            advice if found.overlap_ngram else "",
        )
    if found.max_prompt is not None:
        table.add_row(
            f"prompt over {found.max_prompt} tokens",
            str(len(found.too_long)),
            "the filter prompt_length drops them" if found.too_long else "",
        )
    console.print(table)
    lengths = Table(title="lengths", title_justify="left")
    lengths.add_column("")
    for column in next(iter(found.lengths.values())):
        lengths.add_column(column, justify="right", no_wrap=True)
    for what, quantiles in found.lengths.items():
        lengths.add_row(what, *(f"{value:,.0f}" for value in quantiles.values()))
    console.print(lengths)
    for title, lines in _examples(found, problems):
        shown = list(lines)[:show]
        if shown:
            console.print("\n".join([f"{title}:", *(f"  {line}" for line in shown)]), soft_wrap=True)


def _examples(found: Audit, problems: Sequence[Problem]) -> Iterable[tuple[str, Iterable[str]]]:
    def line(index: int, more: object = "") -> str:
        return f"row {index}: {' '.join(problems[index].question.split())[:80]}  {more}".rstrip()

    yield "gold missing", (line(i) for i in found.missing)
    yield "gold unreadable", (line(b.index, f"gold {b.gold!r}: {b.reason}") for b in found.unreadable)
    yield "gold not equal to itself", (line(b.index, f"gold {b.gold!r}: {b.reason}") for b in found.unequal)
    yield "gold matches as text only", (line(b.index, f"gold {b.gold!r}") for b in found.text_only)
    yield (
        "different golds for one question",
        (line(g[0], f"rows {list(g)}: {[problems[i].answer for i in g]}") for g in found.conflicting),
    )
    yield (
        "13 words of a held-out question",
        (line(i, f"(held-out row {j})") for i, j in (found.overlap_ngram or {}).items()),
    )
