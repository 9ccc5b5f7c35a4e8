"""The filters of expert iteration: near-duplicates, a rising threshold, and the pool of elites."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trlmath import Drop, Grade, Keep, Problem
from trlmath.builtin.selection import Elite, NearDuplicate, RisingThreshold, jaccard, shingles
from trlmath.data.filtering import apply_filters, build_filters
from trlmath.data.lineage import Lineage, from_json, lineage_of, to_json
from trlmath.errors import PluginError, RecipeError
from trlmath.recipe import Ref


def trace(question="q", text="t", row=0, sample=0, iteration=0, pass_rate=1.0, reward=1.0, confidence=0.5):
    lineage = Lineage(iteration, iteration, row, sample, 0, 1.0, pass_rate, confidence, "stop", (1,))
    grade = Grade(reward, {"format": 1.0, "both": reward})
    return Problem(question, "1", trace=text, metadata={"lineage": lineage, "grade": grade})


def kept(decisions):
    return [isinstance(decision, Keep) for decision in decisions]


# -- near_duplicate ---------------------------------------------------------------------------------------


def test_jaccard_over_word_runs():
    one, other = shingles("a b c d", 2), shingles("A b  c e", 2)
    assert jaccard(one, other) == 2 / 4  # ab bc shared, cd ce not
    assert jaccard(one, one) == 1
    assert shingles("short", 3) == {("short",)}
    assert shingles("", 3) == {()}


def test_an_almost_equal_trace_of_the_same_problem_goes_and_another_problems_stays():
    text = "first add 12 and 30 , then add 4 and the result is 46 which we write down as the answer"
    near, far = text.replace("write", "put"), "four tens and six ones make 46"
    items = [trace("p", text), trace("p", near), trace("p", far), trace("r", text)]
    assert kept(NearDuplicate(threshold=0.6).select(items)) == [True, False, True, True]
    assert kept(NearDuplicate(threshold=1.0).select(items)) == [True, True, True, True]
    assert kept(NearDuplicate(threshold=1.0).select([items[0], trace("p", text.upper())])) == [True, False]


def test_near_duplicates_are_counted_by_reason():
    filters = build_filters([Ref(name="near_duplicate")])
    result = apply_filters([trace(), trace(), trace()], filters, "trace")
    assert result.counts() == {"near_duplicate: near-duplicate trace": 2}


# -- rising_threshold -------------------------------------------------------------------------------------


def test_the_threshold_rises_by_schedule_and_stops_at_its_end():
    rising = RisingThreshold(start=0.25, step=0.25, end=0.75)
    passed = []
    for iteration in range(5):
        rising.begin(iteration=iteration, pool=0)
        passed.append([rate for rate in (0.25, 0.5, 0.75, 1.0) if rising(trace(pass_rate=rate)) == Keep()])
    assert [min(rates) for rates in passed] == [0.25, 0.5, 0.75, 0.75, 0.75]


def test_the_threshold_rises_with_the_pool_and_never_falls():
    rising = RisingThreshold(start=0.1, step=0.1, end=0.9, by="pool", every=100)
    rising.begin(iteration=1, pool=250)
    assert rising(trace(pass_rate=0.3)) == Keep()  # 0.1 + 2 x 0.1, whatever the rounding
    assert rising(trace(pass_rate=0.29)) == Drop("pass_rate under 0.3")
    rising.begin(iteration=2, pool=10)
    assert rising(trace(pass_rate=0.2)) == Drop("pass_rate under 0.3")
    again = RisingThreshold(start=0.1, step=0.1, end=0.9, by="pool", every=100)
    again.load_state_dict(rising.state_dict())
    assert again(trace(pass_rate=0.2)) == Drop("pass_rate under 0.3")


@pytest.mark.parametrize(
    ("score", "low", "high"),
    [
        ("reward", {"reward": 0.0}, {"reward": 1.0}),
        ("both", {"reward": 0.0}, {"reward": 1.0}),
        ("hardness", {"pass_rate": 0.75}, {"pass_rate": 0.25}),
        ("confidence", {"confidence": 0.1}, {"confidence": 0.9}),
    ],
)
def test_the_score_is_the_one_asked_for(score, low, high):
    rising = RisingThreshold(start=0.5, step=0, end=0.5, score=score)
    assert isinstance(rising(trace(**low)), Drop)
    assert rising(trace(**high)) == Keep()


def test_what_has_no_score_is_told():
    rising = RisingThreshold(start=0.5, step=0, end=0.5)
    assert rising(trace(pass_rate=None)) == Drop("no pass_rate")
    with pytest.raises(RecipeError, match="it was given, not sampled"):
        rising(Problem("q", trace="t"))
    with pytest.raises(RecipeError, match="Did you mean 'confidence'"):
        RisingThreshold(start=0, step=0, end=1, score="confidense")(trace())
    with pytest.raises(RecipeError, match="start <= end"):
        RisingThreshold(start=1, step=0, end=0)


# -- elite --------------------------------------------------------------------------------------------------


def test_the_best_stay_and_come_back_in_the_next_iteration():
    elite = Elite(size=2)
    items = [
        trace("p", pass_rate=0.5),
        trace("p", sample=1, pass_rate=1.0),
        trace("p", sample=2, pass_rate=0.75),
    ]
    assert kept(elite.select(items)) == [False, True, True]
    assert elite.recall() == items[1:]
    newer = trace("p", iteration=1, pass_rate=1.0)
    assert kept(elite.select([newer, *elite.recall()])) == [True, True, False]


def test_equals_are_ranked_by_iteration_problem_and_sample():
    elite = Elite(size=3)
    old, new = [trace("p", sample=s) for s in range(3)], [trace("p", sample=s, iteration=1) for s in range(2)]
    assert kept(elite.select([*new, *old])) == [True, True, True, False, False]


def test_a_problems_only_trace_is_never_lost_to_the_cap():
    items = [trace(f"p{row}", row=row, pass_rate=row / 10) for row in range(8)]
    items += [trace("p0", row=0, sample=1, pass_rate=0.9)]
    elite = Elite(size=3)
    decisions = kept(elite.select(items))
    # more problems than places: one trace of each, the better of two
    assert decisions == [False, *[True] * 8]


traces = st.builds(
    lambda row, sample, iteration, rate: trace(f"p{row}", "t", row, sample, iteration, rate / 4),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(0, 2),
    st.integers(0, 4),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(traces, max_size=30, unique_by=lambda t: lineage_of(t)), st.integers(1, 12), st.randoms())
def test_the_pool_does_not_depend_on_the_order_of_its_traces(items, size, rng: random.Random):
    shuffled = list(items)
    rng.shuffle(shuffled)
    pools = []
    for given_items in (items, shuffled):
        elite = Elite(size=size)
        elite.select(given_items)
        pools.append({lineage_of(item) for item in elite.recall()})
    assert pools[0] == pools[1]
    questions = {item.question for item in items}
    assert {item.question for item in elite.recall()} == questions
    assert len(elite.recall()) == min(len(items), max(size, len(questions)))


def test_the_pool_goes_through_a_file():
    elite, again = Elite(size=4), Elite(size=4)
    elite.select([trace("p"), trace("r", row=1)])
    again.load_state_dict(from_json(json.loads(json.dumps(to_json(elite.state_dict())))))
    assert again.recall() == elite.recall()


def test_given_traces_cannot_be_ranked():
    filters = build_filters([Ref(name="elite", options={"size": 3})])
    with pytest.raises(PluginError, match=r"filter 'elite'.*expert iteration"):
        apply_filters([Problem("q", trace="t")], filters, "trace")
