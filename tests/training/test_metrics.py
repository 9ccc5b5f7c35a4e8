"""Categories as numbers of training: they always add up, over one step and over several."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest

from trlmath.grading import CATEGORIES
from trlmath.training.metrics import Mean, collapse, log, rollout_metrics
from trlmath.types import Grade, Rollout


def rollouts(*categories):
    """One graded rollout for each category; the empty one is a reward that gives none."""
    return [Rollout(str(i), (1,), None, "stop", Grade(0.0, {}, c)) for i, c in enumerate(categories)]


def shares(numbers):
    return {name: value for name, value in numbers.items() if name.startswith("category/")}


def test_every_category_of_the_grader_is_told_and_they_add_up():
    numbers = rollout_metrics(rollouts("both", "both", "no_think_end", ""))
    assert numbers["rollouts"] == 4
    assert {f"category/{c}" for c in CATEGORIES} <= set(numbers)
    assert (numbers["category/both"], numbers["category/truncated"]) == (0.5, 0.0)
    assert numbers["category/uncategorised"] == 0.25
    assert sum(shares(numbers).values()) == 1.0


def test_a_reward_without_categories_gets_no_columns_of_zeros():
    assert shares(rollout_metrics(rollouts("", ""))) == {"category/uncategorised": 1.0}


def test_they_add_up_over_several_steps():
    """Logged every few steps: a category that one step did not see counts as 0 there."""
    metrics = defaultdict(list)
    for step in (("mine", "other"), ("mine", "mine"), ("third", "mine")):
        log(metrics, rollout_metrics(rollouts(*step)))
    means = {name: sum(values) / len(values) for name, values in metrics.items()}
    assert shares(means) == pytest.approx(
        {"category/mine": 4 / 6, "category/other": 1 / 6, "category/third": 1 / 6}
    )


def test_an_evaluation_tells_the_same_shares():
    from trlmath.evaluation.categories import category_shares

    told = category_shares({"both": 3, "mine": 1})
    assert (told["category/both"], told["category/mine"], told["category/empty"]) == (0.75, 0.25, 0.0)
    assert sum(told.values()) == 1.0
    assert category_shares({"mine": 2}) == {"category/mine": 1.0}
    assert category_shares({}) == {}


def test_micro_batches_become_one_number_a_step():
    values = {"a": [9.0, 1.0, 4.0], "b/low_min": [1.0, 2.0], "b/mean": [1.0, 2.0], "loss": [0.5, 0.25]}
    values |= {"one": [7.0], "num_tokens": [3.0, 5.0], "nothing": [math.nan, math.nan]}
    collapse(values, {"a": 1}, [1, 2], {"b": Mean([1, 2], 10), "loss": Mean([1, 1], 1)})
    assert values == {
        "a": [9.0, 3.0],
        "b/low_min": [0.0],  # what was not computed counts 0
        "b/mean": [0.5],
        "loss": [0.75],
        "one": [7.0],
        "num_tokens": [3.0, 5.0],
        "nothing": [pytest.approx(math.nan, nan_ok=True)],
    }


def test_a_step_of_nothing_tells_nothing():
    values = {"entropy": [0.0], "clip_ratio/low_min": [math.nan], "clip_ratio/low_mean": [0.0]}
    collapse(values, {}, [0], {"clip_ratio": Mean([0], 12)})
    assert math.isnan(values["entropy"][0])
    assert values["clip_ratio/low_min"] == values["clip_ratio/low_mean"] == [0.0]
