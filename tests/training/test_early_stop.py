"""When to stop: patience, direction, smallest improvement, and a metric that is not there."""

from __future__ import annotations

import math

import pytest

from trlmath.errors import RecipeError
from trlmath.recipe.schema import EarlyStopSection
from trlmath.training.early_stop import EarlyStop, measured


def stopped_at(values, **section):
    stop = EarlyStop(EarlyStopSection(metric="eval/both", **section))
    for number, value in enumerate(values):
        if stop.record({"eval/both": value}):
            return number
    return None


@pytest.mark.parametrize(
    ("values", "section", "expected"),
    [
        ([0.1, 0.2, 0.2, 0.1, 0.3], {"patience": 2}, 3),
        ([0.1, 0.2, 0.2, 0.3, 0.2], {"patience": 2}, None),
        ([3.0, 2.0, 2.5, 1.0], {"patience": 2, "mode": "min"}, None),
        ([3.0, 2.0, 2.5, 2.1], {"patience": 2, "mode": "min"}, 3),
        ([0.1, 0.104, 0.109, 0.112], {"patience": 2, "min_delta": 0.01}, 2),
        ([0.5, math.nan, math.nan], {"patience": 2}, 2),
        ([math.nan, 0.5, 0.6], {"patience": 2}, None),
    ],
)
def test_patience(values, section, expected):
    assert stopped_at(values, **section) == expected


def test_an_unknown_metric_is_named_with_what_there_is():
    stop = EarlyStop(EarlyStopSection(metric="eval/boht"))
    with pytest.raises(RecipeError, match="early_stop.metric: got 'eval/boht'.*eval/both.*Did you mean"):
        stop.record({"eval/both": 0.1, "eval/format": 0.2})


def test_another_key_is_named_by_its_own_name():
    with pytest.raises(RecipeError, match="^run.keep_best: got 'train/loss'; .* eval/both"):
        measured("run.keep_best", "train/loss", {"eval/both": 0.1})


def test_it_says_why():
    stop = EarlyStop(EarlyStopSection(patience=1))
    stop.record({"eval/both": 0.25})
    assert stop.record({"eval/both": 0.2})
    assert stop.why == "eval/both has not improved on 0.25 in 1 evaluations"


def test_it_goes_on_from_its_state():
    first, second = (EarlyStop(EarlyStopSection(patience=2)) for _ in range(2))
    first.record({"eval/both": 0.5})
    assert not first.record({"eval/both": 0.4})
    second.load_state_dict(first.state_dict())
    assert second.record({"eval/both": 0.5})
