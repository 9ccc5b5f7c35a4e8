"""Two evaluations, or two graders, side by side in the terminal."""

from __future__ import annotations

from rich.table import Table

from trlmath.evaluation.diff import Difference, Flip
from trlmath.evaluation.regrade import Regraded
from trlmath.reports.plain import PlainConsole


def print_difference(found: Difference, first: str, second: str, show: int) -> None:
    """Print rates, difference, test and the first `show` flips each way."""
    console = PlainConsole()
    console.print(f"A {first}\nB {second}", soft_wrap=True)
    table = Table(
        title=f"{found.part} over {found.problems} common problems",
        title_justify="left",
        caption=f"{found.interval}; {found.test}",
        caption_justify="left",
    )
    for column in ("A %", "B %", "B - A", "B better", "B worse", "same", "p"):
        table.add_column(column, justify="right", no_wrap=True)
    told = found.difference
    table.add_row(
        f"{100 * found.first:.1f}",
        f"{100 * found.second:.1f}",
        f"{100 * told.value:+.1f} [{100 * told.low:+.1f}, {100 * told.high:+.1f}]",
        str(found.better),
        str(found.worse),
        str(found.same),
        f"{found.p_value:.3g}",
    )
    console.print(table)
    if found.only_first or found.only_second:
        console.print(f"not compared: {found.only_first} problems only in A, {found.only_second} only in B")
    for title, flips in (
        ("right in B, not in A", [f for f in found.flips if f.second > f.first]),
        ("right in A, not in B", [f for f in found.flips if f.second < f.first]),
    ):
        if flips and show:
            console.print(f"\n{title} ({len(flips)}):")
            for flip in flips[:show]:
                console.print(_flip(flip), soft_wrap=True)
            if len(flips) > show:
                console.print(f"  and {len(flips) - show} more (--show, --out)")


def _flip(flip: Flip) -> str:
    question = " ".join(flip.question.split())
    lines = [f"  {question[:100]}  (gold {flip.gold})"]
    for name, share, sample in (
        ("A", flip.first, flip.first_sample),
        ("B", flip.second, flip.second_sample),
    ):
        answer = "no answer found" if sample.extracted is None else " ".join(sample.extracted.split())[:40]
        lines.append(f"    {name} {share:.2f}  {sample.category}: {answer}")
    return "\n".join(lines)


def print_regraded(found: Regraded, show: int) -> None:
    """Print how the categories moved, and the first `show` disagreements with both reasons."""
    console = PlainConsole()
    differ = found.disagreements
    table = Table(
        title=f"{len(found.pairs)} completions graded again, {len(differ)} graded differently",
        title_justify="left",
    )
    table.add_column("before", overflow="fold")
    table.add_column("now", overflow="fold")
    table.add_column("n", justify="right", no_wrap=True)
    for (before, now), count in found.table().items():
        table.add_row(before, now, str(count))
    console.print(table)
    for old, new in differ[:show]:
        ending = " ".join(old.completion.split())[-160:]
        lines = [
            f"\n  {' '.join(old.question.split())[:100]}  (gold {old.gold})",
            f"    ...{ending}",
            f"    before {_reward(old.reward)}  {old.category}: {old.reason}",
            f"    now    {_reward(new.reward)}  {new.category}: {new.reason}",
        ]
        console.print("\n".join(lines), soft_wrap=True)
    if len(differ) > show:
        console.print(f"\n  and {len(differ) - show} more (--show)")


def _reward(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"
