"""Progress bars: nothing cut off at any usual width, times labelled, the numbers that matter kept."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from trlmath.reports.console import ConsoleDisplay, fitting

NUMBERS = {"reward": 0.41, "format": 0.59, "answer": 0.68, "both": 0.41, "tok/s": 1390.0}


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("what", ["train", "evaluate before, sampled"])
def test_a_bar_is_whole(width, what):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, highlight=False, color_system=None)
    with ConsoleDisplay(console).bar(what, 256) as advance:
        advance(255, **NUMBERS)
    last = [line for line in stream.getvalue().splitlines() if "255/256" in line][-1]
    assert "…" not in last
    assert " elapsed, " in last
    assert " left" in last
    assert "tok/s 1,390" in last


def test_what_does_not_fit_is_left_out_whole():
    assert fitting(NUMBERS, 200) == "reward 0.41  format 0.59  answer 0.68  both 0.41  tok/s 1,390"
    assert fitting(NUMBERS, 24) == "reward 0.41  tok/s 1,390"
    assert fitting(NUMBERS, 11) == "tok/s 1,390"
    assert fitting(NUMBERS, 3) == ""
