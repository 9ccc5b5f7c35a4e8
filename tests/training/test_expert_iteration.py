"""The pieces of expert iteration: draws, temperatures, traces and their lineage, selection, examples."""

from __future__ import annotations

import math
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trlmath import Drop, Grade, Group, Keep, Problem, Rollout
from trlmath.builtin.selection import Elite
from trlmath.components import Component
from trlmath.data.filtering import NamedFilter
from trlmath.data.lineage import lineage_of
from trlmath.recipe.schema import ExpertIterationSection
from trlmath.targets import Origin
from trlmath.training import expert_iteration as pieces
from trlmath.training.iteration_metrics import group_metrics


def rollout(text="t", reward=1.0, ids=(5, 6), logprobs=(-0.5, -1.5), finish="stop", **parts):
    return Rollout(text, ids, logprobs, finish, Grade(reward, parts))


def group(*rollouts, question="q", **metadata):
    return Group("p", (1, 2), tuple(rollouts), Problem(question, "1", metadata=metadata))


def trace_filter(target):
    return NamedFilter(
        "mine", Component("filter", "mine", target, Origin("trlmath-x", "1", "x.py:1")), target
    )


# -- what is drawn ------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 12), st.data())
def test_every_problem_is_drawn_before_one_comes_again(rows, data):
    size = data.draw(st.integers(1, rows))
    drawn = list(islice(pieces.draws(rows, size, seed=3), 12))
    assert all(len(set(numbers)) == size for numbers in drawn)
    seen = [0] * rows
    for numbers in drawn:
        for row in numbers:
            seen[row] += 1
        # a draw across two rounds may leave one problem a round behind for as long as the draw lasts
        assert max(seen) - min(seen) <= (1 if rows % size == 0 else 2)


def test_rounds_are_shuffled_anew_and_by_the_seed():
    one = list(islice(pieces.draws(8, 4, seed=0), 4))
    assert sorted(one[0] + one[1]) == sorted(one[2] + one[3]) == list(range(8))
    assert one[:2] != one[2:]
    assert one == list(islice(pieces.draws(8, 4, seed=0), 4))
    assert one != list(islice(pieces.draws(8, 4, seed=1), 4))


@pytest.mark.parametrize(("rows", "size"), [(0, 1), (3, 4), (3, 0)])
def test_more_than_there_are_cannot_be_drawn(rows, size):
    with pytest.raises(ValueError, match="cannot draw"):
        next(pieces.draws(rows, size, seed=0))


def test_seeds_differ_by_place_and_fit_every_generator():
    seeds = {pieces.seed_of(0, "sample", i, c) for i in range(20) for c in range(20)}
    assert len(seeds) == 400
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert (
        pieces.seed_of(0, "sample", 1, 2)
        == pieces.seed_of(0, "sample", 1, 2)
        != pieces.seed_of(1, "sample", 1, 2)
    )


def test_the_temperature_follows_its_schedule_and_rises_when_nothing_was_kept():
    scheduled = ExpertIterationSection(temperatures=[1.0, 1.2], hotter_by=0.25)
    assert [pieces.temperature_at(scheduled, 0.7, i) for i in range(4)] == [1.0, 1.2, 1.2, 1.2]
    assert pieces.temperature_at(scheduled, 0.7, 3, raised=2) == 1.7
    assert pieces.temperature_at(ExpertIterationSection(), 0.7, 3) == 0.7


# -- traces -------------------------------------------------------------------------------------------------


def test_the_pass_rate_is_of_what_can_be_scored():
    scored = [rollout(both=1.0), rollout(both=0.0), rollout(reward=None), rollout(reward=0.5)]
    assert pieces.pass_rate(scored) == 1 / 3
    assert (
        pieces.pass_rate([rollout(reward=1.0), rollout(reward=0.9)]) == 1 / 2
    )  # no part `both`: reward of 1
    assert pieces.pass_rate([rollout(reward=None)]) is None


def test_a_trace_knows_where_it_comes_from():
    groups = [group(rollout("a", both=1.0), rollout("b", both=0.0), level=(1, 2))]
    traces = pieces.traces_of(groups, [7], [99], iteration=2, weights_version=1, temperature=1.1)
    assert [t.trace for t in traces] == ["a", "b"]
    lineage = lineage_of(traces[1])
    assert (lineage.iteration, lineage.weights_version, lineage.row, lineage.sample) == (2, 1, 7, 1)
    assert (lineage.seed, lineage.temperature, lineage.pass_rate) == (99, 1.1, 0.5)
    assert lineage.confidence == pytest.approx(math.exp(-1))
    assert traces[0].metadata["level"] == [1, 2]  # as it would read back from a file
    row = pieces.trained_row(traces[0], iteration=3)
    assert (row["trained_in"], row["iteration"], row["row"], row["seed"], row["score"]) == (3, 2, 7, 99, 1.0)
    assert (row["question"], row["trace"], row["parts"]) == ("q", "a", {"both": 1.0})


@pytest.mark.parametrize(
    ("ids", "finish", "expected"),
    [
        ((5, 6), "stop", (5, 6, 0)),  # a stop string ended it: the end-of-text is added
        ((5, 6, 0), "stop", (5, 6, 0)),
        ((5, 6), "length", (5, 6)),  # cut off: it has not ended
        ((), "stop", (0,)),
    ],
)
def test_the_trained_tokens_are_those_sampled_and_the_end_of_text(ids, finish, expected):
    traces = pieces.traces_of([group(rollout(ids=ids, finish=finish))], [1], [0], 0, 0, 1.0)
    example = pieces.example_of(traces[0], 4, [[8], [1, 2]], eos=0)
    assert (example.prompt_ids, example.response_ids, example.row) == ((1, 2), expected, 4)


def test_a_trace_over_the_limit_is_dropped_with_its_reason():
    traces = pieces.traces_of([group(rollout(ids=(1, 2, 3)), rollout(ids=(1, 2)))], [0], [0], 0, 0, 1.0)
    kept, dropped = pieces.fitting(traces, [[9, 9]], max_length=5)  # prompt 2 + response 2 + end-of-text
    assert kept == traces[1:]
    assert [(entry.reason, entry.index) for entry in dropped] == [("over 5 tokens", 0)]
    assert pieces.fitting(traces, [[9, 9]], None) == (traces, [])


# -- selection ----------------------------------------------------------------------------------------------


class Remembering:
    """Recalls what it kept, drops what says so, and notes when it is asked what."""

    moment = "trace"

    def __init__(self):
        self.calls, self.pool = [], []

    def begin(self, iteration, pool):
        self.calls.append((iteration, pool))

    def recall(self):
        return self.pool

    def select(self, items):
        self.calls.append([item.trace for item in items])
        self.pool = [item for item in items if "bad" not in item.trace]
        return [Drop("bad") if "bad" in item.trace else Keep() for item in items]


def test_recalled_traces_are_selected_again_behind_the_new_ones():
    target = Remembering()
    named = trace_filter(target)
    first = pieces.select([Problem("q", trace="a"), Problem("q", trace="bad")], [named], 0, pool=0)
    assert (first.new, first.candidates, first.recalled, len(first.traces)) == (1, 2, 0, 1)
    second = pieces.select([Problem("q", trace="b")], [named], 1, pool=1)
    assert [trace.trace for trace in second.traces] == ["b", "a"]
    assert (second.new, second.candidates, second.recalled) == (1, 1, 1)
    assert target.calls == [(0, 0), ["a", "bad"], (1, 1), ["b", "a"]]
    nothing = pieces.select([Problem("q", trace="bad")], [named], 2, pool=2)
    assert (nothing.new, len(nothing.traces)) == (0, 2)
    numbers = pieces.selection_metrics(nothing)
    assert (numbers["kept_share"], numbers["pool_size"], numbers["pool_problems"]) == (0.0, 2, 1)


def test_a_trace_that_two_filters_recall_comes_back_once():
    traces = pieces.traces_of([group(rollout(), rollout())], [0], [9], 0, 0, 1.0)
    filters = [trace_filter(Elite(size=4, score=score)) for score in ("reward", "confidence")]
    assert pieces.select(traces, filters, 0, pool=0).new == 2
    again = pieces.select([], filters, 1, pool=2)
    assert (again.recalled, len(again.traces)) == (2, 2)


def test_without_trace_filters_everything_is_kept():
    other = trace_filter(Remembering())
    other.moment = "example"
    selection = pieces.select([Problem("q", trace="bad")], [other], 0, pool=0)
    assert (selection.new, selection.dropped) == (1, [])
    assert pieces.selection_metrics(selection)["kept_share"] == 1.0
    assert pieces.selection_metrics(pieces.select([], [], 0, pool=0))["kept_share"] == 0.0


def test_shares_of_solved_problems():
    groups = [
        group(rollout(both=1.0), rollout(both=0.0)),
        group(rollout(both=1.0), rollout(both=1.0)),
        group(rollout(both=0.0)),
        group(rollout(reward=None)),
    ]
    assert group_metrics(groups) == {"solved": 2 / 3, "always_solved": 1 / 3}
    assert group_metrics([group(rollout(reward=None))]) == {}
