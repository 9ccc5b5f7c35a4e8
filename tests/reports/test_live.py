"""The live view: trends, columns that fit, a rollout that cannot steer the terminal, the log beside it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from trlmath.evaluation.display import Silent
from trlmath.reports.console import ConsoleDisplay
from trlmath.reports.live import sampled_rollout, short, trend
from trlmath.types import Grade, Group, Problem, Rollout

STEP = {
    "train/reward": 0.25,
    "train/format": 0.5,
    "train/answer": 0.625,
    "train/loss": 0.1,
    "train/entropy": 0.4,
    "train/completions/mean_length": 42.0,
    "train/completions/clipped_ratio": 0.0,
    "train/frac_reward_zero_std": 0.25,
    "train/grad_norm": 1.5,
    "train/tokens": 900,
    "time/step": 3.0,
    "time/generate": 1.0,
    "time/update": 2.0,
    "memory/host": 1.25,
}


def test_a_trend_goes_with_the_values():
    assert trend([]) == trend([1.0]) == ""
    assert trend([0.0, 1.0]) == "▁█"
    assert trend([1, 2, 3, 4, 5, 6, 7, 8], width=8) == "▁▂▃▄▅▆▇█"
    assert trend([2.0] * 20) == "▁" * 7
    assert trend(list(range(160)), width=8) == "▁▂▃▄▅▆▇█"
    assert trend([1.0, float("nan"), 2.0]) == "▁█"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25, "0.250"),
        (42.5, "42.5"),
        (12345.0, "12,345"),
        (0.0, "0.000"),
        (2e-5, "2e-05"),
        (float("nan"), "nan"),
    ],
)
def test_short_numbers(value, text):
    assert short(value) == text


def terminal(width):
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None, highlight=False)


@pytest.mark.parametrize("width", [80, 120])
def test_the_view_is_whole(width, tmp_path):
    console = terminal(width)
    display = ConsoleDisplay(console)
    display.record(tmp_path / "console.log")
    with display.training("train", 30) as watch:
        for step in range(1, 31):
            watch.metrics({**STEP, "train/reward": step / 100})
            watch.advance(1)
        with display.bar("evaluate step-4, sampled", 2) as advance:  # in the middle of training
            advance(2)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, (line.split("\r")[-1] for line in lines if "\x1b" not in line)), default=0) <= width
    text = "\n".join(lines[-9:])
    for shown in (
        "30/30",
        "0.300",
        "▁",
        "no spread",
        "step 3.0 s (generate 1.0, update 2.0)",
        "300 tok/s",
        "memory 1.2 GiB",
    ):
        assert shown in text
    assert "loss" not in text  # it tells nothing where there is a reward
    assert "…" not in text
    log = (tmp_path / "console.log").read_text()
    assert "train  30/30  reward 0.30" in log
    assert "evaluate step-4, sampled  2/2" in log
    assert "\x1b" not in log


def test_plain_lines_where_there_is_no_terminal(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=False, width=80)
    display = ConsoleDisplay(console)
    display.record(tmp_path / "console.log")
    display.note("data     [red]")
    with display.training("train", 100) as watch:
        for step in range(1, 101):
            watch.metrics({"train/loss": 1.0 / step})
            watch.advance(1, **{"tok/s": 12.0})
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "data     [red]"
    assert len(lines) == 21
    assert lines[-1] == "train  100/100  loss 0.01  tok/s 12.00"
    assert (tmp_path / "console.log").read_text().splitlines() == lines


def test_a_rollout_is_text():
    grade = Grade(1.0, {}, "both", "same \x1b[2J number")
    hostile = Rollout("\x1b[31m[bold]think[/bold]\n</think> \u202e <answer> 4", (1,), grade=grade)
    group = Group("p", (1,), (hostile,), Problem("2 + 2?\x07", "4"))
    lines = sampled_rollout([group], 3, 80)
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x07" not in text
    assert lines[0].startswith("rollout  step 3: 2 + 2?")
    assert "[bold]think[/bold]" in lines[1]
    assert "reward 1, both" in lines[2]
    console = Console(file=io.StringIO(), force_terminal=False, width=200)
    with ConsoleDisplay(console).training("train", 2) as watch:
        watch.rollouts([group], 3)
    assert "[bold]think[/bold]" in console.file.getvalue()


def test_a_grade_without_category_and_reason_is_its_reward():
    group = Group("p", (1,), (Rollout("4", (1,), grade=Grade(0.5)),), Problem("2 + 2?", "4"))
    assert sampled_rollout([group], 0, 80)[2] == "  reward 0.5"


def test_a_long_completion_is_cut_in_its_middle():
    group = Group("p", (1,), (Rollout("a" * 500 + "b" * 500, (1,)),))
    (_, completion, _) = sampled_rollout([group], 0, 80)
    assert len(completion) < 320
    assert completion.strip().startswith("aaa")
    assert completion.endswith("bbb")
    assert sampled_rollout([], 0, 80) == []


def test_a_page_that_fails_is_told(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=False, width=300)
    ConsoleDisplay(console).report(tmp_path / "nothing")
    assert "could not be made (DataError" in console.file.getvalue()


def test_silence():
    with Silent().training("train", 3) as watch:
        watch.metrics({})
        watch.advance(1)
        watch.rollouts([], 1)
