"""The reward counts the format's steps in order, and is offered by its name."""

from __future__ import annotations

import pytest
import trlmath_format_steps
from trlmath_format_steps import STEPS, FormatSteps, register_rewards, steps_taken

from trlmath import RecipeError


def test_it_conforms(check_plugin):
    check_plugin(trlmath_format_steps)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("so 2 </think> <answer> 2 </answer>", 4),
        ("so 2 </think>\n\n<answer>2</answer>\n", 4),
        ("so 2 </think> <answer> 2", 3),
        ("so 2 </think> <answer> 2 </answer> and more", 3),
        ("so 2 </think> <answer> 2 <answer> 3 </answer>", 3),
        ("so 2 </think> <answer> </answer>", 2),
        ("so 2 </think> <answer>", 2),
        ("so 2 </think> the answer is <answer> 2 </answer>", 1),
        ("so 2 </think>", 1),
        ("so 2 <answer> 2 </answer>", 0),
        ("</think> </think> <answer> 2 </answer>", 0),
        ("<answer></answer>" * 9, 0),
        ("", 0),
    ],
)
def test_steps_in_order(text, steps):
    assert steps_taken(text) == steps
    (grade,) = FormatSteps()([text])
    assert grade.reward == steps / 4
    assert list(grade.parts.values()) == [1.0] * steps + [0.0] * (4 - steps)
    assert grade.category == ("all_steps" if steps == 4 else f"no_{STEPS[steps]}")


def test_fewer_steps():
    (grade,) = FormatSteps(steps=2)(["x </think> <answer> y"])
    assert grade.reward == 1.0
    assert set(grade.parts) == {"think_end", "answer_open"}
    with pytest.raises(RecipeError, match="got 5"):
        FormatSteps(steps=5)


def test_it_is_offered_by_name():
    offered = {}
    register_rewards(offered.__setitem__)
    assert offered == {"format_steps": FormatSteps}
