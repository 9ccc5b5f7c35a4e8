"""The filter remembers: what it decides depends on earlier steps, and survives being saved."""

import json

import pytest
import trlmath_difficulty
from trlmath_difficulty import Difficulty

from trlmath import Drop, Grade, Group, Keep, PluginError, Problem, RecipeError, Rollout

EASY, HARD = Drop("too easy by now"), Drop("too hard so far")


def test_it_conforms(check_plugin):
    check_plugin(trlmath_difficulty)


def group(*rewards, question="1+1?", parts=None):
    rollouts = tuple(Rollout("x", (1,), grade=Grade(r, parts or {})) for r in rewards)
    return Group("p", (1,), rollouts, Problem(question, "2"))


def test_a_problem_is_judged_from_its_second_group_on():
    keep = Difficulty(low=0.2, high=0.8)
    assert keep(group(1, 1)) == Keep()
    assert keep(group(1, 1)) == EASY
    assert keep(group(0, 0, question="other?")) == Keep()
    assert keep(group(0, 0, question="other?")) == HARD


def test_the_past_counts():
    keep = Difficulty(low=0.2, high=0.8, memory=0.5, patience=0)
    assert keep(group(1, 0)) == Keep()  # 0.5
    assert keep(group(1, 1)) == Keep()  # 0.75: one lucky group is no proof
    assert keep(group(1, 1)) == EASY  # 0.875
    assert keep(group(1, 0)) == Keep()  # 0.6875: it comes back
    now_only = Difficulty(low=0.2, high=0.8, memory=0.0, patience=0)
    assert [now_only(group(*r)) for r in ((1, 0), (1, 1), (0, 0))] == [Keep(), EASY, HARD]


def test_it_goes_on_from_its_saved_state():
    first = Difficulty(low=0.2, high=0.8)
    for rewards in ((1, 0), (1, 1)):
        first(group(*rewards))
    second = Difficulty(low=0.2, high=0.8)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second(group(1, 1)) == first(group(1, 1)) == EASY
    assert Difficulty(low=0.2, high=0.8)(group(1, 1)) == Keep(), "without the state it would be kept"


def test_what_counts_as_passed():
    by_part = Difficulty(low=0.2, high=0.8, patience=0, part="answer")
    assert by_part(group(0.0, 0.0, parts={"answer": 1.0})) == EASY
    with pytest.raises(PluginError, match="no part 'both'; it has answer"):
        Difficulty(part="both")(group(0.0, parts={"answer": 1.0}))


def test_a_group_that_could_not_be_scored():
    assert Difficulty()(group(None, None)) == Drop("no scorable rollout")
    keep = Difficulty(patience=0)
    assert keep(group(None, 1, 0)) == Keep(), "what could not be scored does not count"


@pytest.mark.parametrize(
    "options", [{"low": 0.9, "high": 0.1}, {"memory": 1.0}, {"patience": -1}, {"high": 2}]
)
def test_options_that_cannot_be(options):
    with pytest.raises(RecipeError, match="difficulty needs"):
        Difficulty(**options)
