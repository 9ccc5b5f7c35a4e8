"""Claims are found, judged exactly, and counted once."""

import pytest
import trlmath_process
from trlmath_process import Arithmetic, claims

from trlmath import RecipeError


def test_it_conforms(check_plugin):
    check_plugin(trlmath_process)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("3 * 4 = 12", True),
        ("3*4=13", False),
        ("12 - 15 = -3", True),
        ("-2 + 5 = 3", True),
        ("2 - (-5) = 7", True),
        ("1,200 + 300 = 1,500", True),
        ("7 / 2 = 3.5", True),
        ("7 / 2 = 3", False),
        ("1 / 3 = 0.33", True),
        ("2 / 3 = 0.66", False),
        ("0.1 + 0.2 = 0.3", True),
        ("5 / 0 = 0", False),
        (r"$6 \times 7 = 42$", True),
        ("6 \u00d7 7 = 41", False),
        ("6 x 7 = 42.", True),
        ("in total = 5 + 3 = 8", True),
        ("5 + 3 = 8 - and so on", True),
        ("8 \u00f7 2 = 4", True),
        ("10 \u2212 4 = 6", True),
    ],
)
def test_one_claim(text, right):
    assert list(claims(text).values()) == [right]


@pytest.mark.parametrize(
    "text",
    [
        "2 + 3 + 4 = 9",
        "2 = 2",
        "x + 1 = 2",
        "3 + 4 = x",
        "3 + 4 = 7x",
        "3 + 4",
        "1 + 1 = 2/3",
        "3 + 4 = 7 + 1",
        "v1.2 + 3 = 4",
        "",
    ],
)
def test_no_claim(text):
    assert claims(text) == {}


def test_the_share_of_distinct_claims_is_rewarded():
    text = "So 3 * 4 = 12, then 12 + 5 = 18. Yes, 3 * 4 = 12. </think> <answer> 1 + 1 = 3 </answer>"
    (grade,) = Arithmetic()([text])
    assert grade.reward == 0.5
    assert grade.parts == {"steps_right": 0.5, "steps_any": 1.0}
    assert grade.reason == "1 of 2 claims are right; not 12 + 5 = 18"
    (everywhere,) = Arithmetic(where="all")([text])
    assert everywhere.reward == pytest.approx(1 / 3)


def test_repeating_earns_nothing_and_enough_asks_for_more():
    (once,), (often,) = (Arithmetic(enough=4)(["1 + 1 = 2. " * n]) for n in (1, 99))
    assert once.reward == often.reward == 0.25


def test_without_a_claim():
    (grade,) = Arithmetic(without=-0.5)(["It is 4."])
    assert grade.reward == -0.5
    assert grade.parts == {"steps_right": None, "steps_any": 0.0}
    with pytest.raises(RecipeError, match="enough"):
        Arithmetic(enough=0)
