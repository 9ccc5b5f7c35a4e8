"""Each check strikes on what it is for, and stays silent on a run that learns."""

from __future__ import annotations

import math

import pytest

from trlmath.training.health import CHECKS, Health


def struck(rows, window=4):
    health = Health(window)
    return [f for row in rows for f in health.step(row)]


def grpo(**changes):
    return {
        "train/loss": 0.01,
        "train/grad_norm": 0.5,
        "train/reward": 0.4,
        "train/entropy": 0.4,
        "train/frac_reward_zero_std": 0.3,
        "train/completions/mean_length": 100.0,
        "train/completions/clipped_ratio": 0.1,
        "train/clip_ratio/region_mean": 0.02,
        "engine/importance_sampling_ratio/mean": 1.0,
        **changes,
    }


def test_a_run_that_learns_is_left_alone():
    rows = [
        grpo(**{"train/reward": 0.3 + i / 100, "train/entropy": 0.5 - i / 150, "train/loss": (-1) ** i * 0.1})
        for i in range(50)
    ]
    assert struck([*rows, {"eval/both": 0.3}, {"eval/both": 0.6}], window=20) == []


@pytest.mark.parametrize(
    ("rows", "check", "words"),
    [
        ([grpo(**{"train/loss": math.nan})], "nan", "train/loss is not a number"),
        ([grpo(**{"train/grad_norm": None})], "nan", "train/grad_norm"),
        ([grpo(**{"train/loss": math.inf})], "nan", "learning_rate"),
        ([grpo(**{"engine/importance_sampling_ratio/mean": 7.3})], "exploding_ratio", "factor of 7.30"),
        ([grpo(**{"train/clip_ratio/region_mean": 0.97})] * 3, "exploding_ratio", "over 90% of the tokens"),
        ([*[grpo()] * 4, *[grpo(**{"train/entropy": 0.01})] * 4], "entropy_collapse", "2.5% of what it was"),
        ([grpo(**{"train/frac_reward_zero_std": 1.0})] * 4, "flat_reward", "in 4 steps (mean reward 0.40)"),
        (
            [{"train/loss": x} for x in (1.0, 1.01, 1.0, 0.99, 0.5, 2.5, 0.4, 3.0)],
            "oscillating_loss",
            "from 1.000 to 1.600",
        ),
        (
            [*[grpo()] * 4, *[grpo(**{"train/completions/mean_length": 9.0})] * 4],
            "length_collapse",
            "9% as long",
        ),
        ([grpo(**{"train/completions/clipped_ratio": 1.0})] * 2, "all_truncated", "of 2 steps was cut off"),
        ([{"eval/both": x} for x in (0.6, 0.58, 0.55, 0.5)], "falling_validation", "from 60.0% to 50.0%"),
    ],
)
def test_each_check_strikes_and_says_how_to_switch_it_off(rows, check, words):
    found = struck(rows)
    assert {f.check for f in found} == {check}
    assert words in str(found[-1])
    assert f"checks.{check}: off" in str(found[-1])
    assert check in CHECKS


def test_not_before_there_is_enough_to_see():
    assert struck([grpo(**{"train/frac_reward_zero_std": 1.0})] * 3) == []
    assert struck([{"eval/both": x} for x in (0.6, 0.599, 0.598, 0.597)]) == [], "a fall within the noise"
    assert struck([grpo(**{"train/clip_ratio/region_mean": 0.97})] * 2) == []
    assert struck([{"train/loss": 1.0}]) == [], "SFT has no rollouts"
