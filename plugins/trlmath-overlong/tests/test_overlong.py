"""The punishment is DAPO's equation 13; the filter goes by the engine's word."""

import pytest
import trlmath_overlong
from trlmath_overlong import MostlyCut, Overlong

from trlmath import Drop, Group, Keep, RecipeError, Rollout


def test_it_conforms(check_plugin):
    check_plugin(trlmath_overlong)


@pytest.mark.parametrize(
    ("tokens", "reward"), [(0, 0), (12, 0), (13, -0.25), (14, -0.5), (16, -1), (17, -1), (999, -1)]
)
def test_equation_13(tokens, reward):
    (grade,) = Overlong(max_tokens=16, buffer=4)(completion_ids=[[1] * tokens])
    assert grade.reward == reward
    assert grade.parts["in_time"] == (reward == 0)


def test_agrees_with_trl():
    soft = pytest.importorskip("trl.rewards").get_soft_overlong_punishment(100, 30)
    ids = [[1] * n for n in range(0, 130, 7)]
    assert [g.reward for g in Overlong(100, 30)(completion_ids=ids)] == pytest.approx(
        soft(completion_ids=ids)
    )


def group(*reasons):
    return Group("p", (1,), tuple(Rollout("x", (1,), finish_reason=reason) for reason in reasons))


def test_a_group_is_dropped_when_most_of_it_was_cut_off():
    assert MostlyCut()(group("length", "length", "stop")) == Drop("mostly cut off")
    assert MostlyCut()(group("length", "stop")) == Keep()
    assert MostlyCut(share=0.0)(group("length", "stop")) == Drop("mostly cut off")


def test_options_that_cannot_be():
    with pytest.raises(RecipeError, match="buffer"):
        Overlong(max_tokens=4, buffer=8)
    with pytest.raises(RecipeError, match="share"):
        MostlyCut(share=1.0)
