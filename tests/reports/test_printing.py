"""What a reward prints during training stands above the live view, and cannot steer the terminal."""

from __future__ import annotations

import io

from trlmath.components import Component
from trlmath.recipe import RewardEntry
from trlmath.reports.console import ConsoleDisplay
from trlmath.reports.plain import PlainConsole
from trlmath.rewards import RewardCaller
from trlmath.targets import Origin


def talks(completions):
    print("graded", len(completions), "\x1b[2J\x1b]0;owned\x07 [red]rollouts[/red]")
    print("half a line", end="")
    return [0.0] * len(completions)


def test_what_a_reward_prints_does_not_break_the_live_view():
    out = io.StringIO()
    display = ConsoleDisplay(PlainConsole(file=out, force_terminal=True, width=80, height=20))
    reward = RewardCaller(
        RewardEntry(name="talks"), Component("reward", "talks", talks, Origin("trlmath-x", "1.0", "x.py:1"))
    )
    with display.training("train", 3) as watch:
        watch.metrics({"train/reward": 0.5})
        reward(completions=["a", "b"])
        watch.advance(1)
    text = out.getvalue()
    assert "graded 2 " in text
    assert "[red]rollouts[/red]\n" in text
    assert "half a line\n" in text
    assert "\x1b[2J" not in text
    assert "\x1b]0;" not in text
    # the view is drawn anew below what was printed
    assert text.rindex("train ") > text.index("half a line")
