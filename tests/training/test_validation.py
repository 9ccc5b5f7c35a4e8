"""Evaluations that fall are seen through a bump, and noise on a plateau is not taken for a fall."""

from __future__ import annotations

import math
import random

import pytest

from trlmath.training.validation import Validation


def fell(values, name="eval/both", **options):
    series = Validation(**options)
    return next((i for i, value in enumerate(values) if series.add({name: value})), None)


def test_a_fall_is_seen_through_a_bump():
    assert fell((0.9, 0.7, 0.5, 0.51, 0.3)) == 3
    assert fell((0.9, 0.7, 0.92, 0.7, 0.5, 0.6)) == 5, "a new best begins anew"
    assert fell((0.9, 0.7, None, math.nan, 0.5, 0.51)) == 5, "what is not known does not count"
    assert fell((0.3, 0.5, 0.6, 0.62, 0.6, 0.61)) is None


@pytest.mark.parametrize(
    ("name", "options", "values"),
    [
        ("eval_greedy/both", {"metrics": ("eval_greedy/both",)}, (0.9, 0.7, 0.5, 0.3)),
        ("eval/reward", {}, (0.9, 0.7, 0.5, 0.3)),
        ("eval/reward", {}, (-3.0, -4.0, -4.0, -5.0)),
        ("eval/mean_length", {"metrics": ("eval/mean_length",), "better": -1}, (90, 100, 110, 120)),
    ],
)
def test_any_metric_can_fall(name, options, values):
    assert fell(values, name, **options) == 3


def test_other_settings_are_passed_over_and_a_lacking_metric_is_known():
    series = Validation()
    assert series.add({"eval_greedy/both": 0.1}) is None
    assert not series.idle
    series.add({"eval/format": 1.0})
    assert series.idle


def test_noise_on_a_plateau_is_no_fall():
    chance, alarms, runs = random.Random(0), 0, 400
    for _ in range(runs):
        values = [sum(chance.random() < 0.5 for _ in range(64)) / 64 for _ in range(20)]
        alarms += fell(values, completions=64) is not None
    assert alarms < runs / 20
