"""Two evaluations, or two graders, side by side in the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from trlmath.evaluation.diff import Difference, Flip


def print_difference(found: Difference, first: str, second: str, show: int) -> None:
    """Print rates, difference, test and the first `show` flips each way."""
    console = Console(highlight=False)
    console.print(f"A {first}\nB {second}", markup=False, soft_wrap=True)
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
                console.print(_flip(flip), markup=False, soft_wrap=True)
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
