"""A study's table at every width and as markdown: what is told, and that nothing of it is lost."""

from __future__ import annotations

import math
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from trlmath.evaluation.report import Rate
from trlmath.reports.study_tables import history_markdown, study_markdown, study_table
from trlmath.studies.results import Measured, Row, RunResult


def measured(value=0.5, label="sampled", entropy=0.25):
    rate = Rate(value, value - 0.125, value + 0.125)
    return Measured(
        label, 64, dict.fromkeys(("format", "answer", "both"), rate), entropy, 41.25, 0.0, "Wilson"
    )


ROWS = [
    Row("zero-shot", "evaluate", 1, 1, "finished", 12.4, measured(0.25)),
    Row("sft", "sft", 1, 1, "finished", 99.6, measured(), "zero-shot", Rate(0.25, 0.0625, 0.4), "paired"),
    Row(
        "grpo",
        "grpo",
        1,
        2,
        "failed",
        10.0,
        measured(entropy=None),
        "sft",
        Rate(0.125, math.nan, math.nan),
        "t",
    ),
    Row("lost", "grpo", 0, 1, "skipped", against="sft"),
    Row("other", "sft", 1, 1, "finished", 1.0, measured(), "zero-shot", None, "no difference is told: why"),
]


def printed(width):
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(study_table(ROWS, "sampled", "both", width))
    return console.file.getvalue()


def test_a_wide_terminal_gets_a_line_a_run():
    text = printed(170)
    (line,) = [line for line in text.splitlines() if line.strip().startswith("sft")]
    assert line.split("  ")[0].strip() == "sft"
    for piece in ("50.0 [37.5, 62.5]", "0.250", "41.2", "100", "+25.0 [+6.2, +40.0]", "zero-shot"):
        assert piece in line, line
    assert "sampled, 64 held-out problems" in text
    assert "grpo (1 of 2 seeds)" in text
    assert "+12.5  sft" in text, "one seed of two: no interval"
    assert "skipped" in text
    assert "other: no difference is told: why" in text


@pytest.mark.parametrize("width", [80, 110, 140])
def test_narrower_ones_keep_names_rates_and_differences(width):
    lines = printed(width).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for piece in ("zero-shot", "50.0", "25.0", "+25.0", "skipped"):
        assert piece in text, text
    assert ("0.250" in text) == (width >= 100)
    assert ("[38, 62]" if width < 130 else "[37.5, 62.5]") in text


def test_markdown_has_as_many_cells_in_every_line():
    text = study_markdown(ROWS, "sampled", "both")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + len(ROWS)
    assert {line.count("|") for line in table} == {12}
    assert "| sft | sft | 64 | 50.0 [37.5, 62.5] |" in text
    assert "- rates: Wilson" in text


def test_history_is_told_of_runs_that_were_evaluated_more_than_twice():
    often = [
        measured(0.25, "before/sampled"),
        measured(0.5, "iteration-0/sampled"),
        measured(0.75, "iteration-1/sampled"),
    ]
    results = [
        RunResult("ei", "ei", "expert_iteration", Path(), "finished", history={"sampled": often}),
        RunResult("sft", "sft", "sft", Path(), "finished", history={"sampled": often[:2]}),
    ]
    text = history_markdown(results, "sampled")
    assert "| ei | before | 25.0 [12.5, 37.5] |" in text
    assert "|  | iteration-1 | 75.0 [62.5, 87.5] |" in text
    assert "sft" not in text
    assert history_markdown(results[1:], "sampled") == ""
