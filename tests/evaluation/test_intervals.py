"""Intervals cover what they promise, by simulation, and agree with published values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trlmath.evaluation.intervals import bootstrap, newcombe_paired, sign_test, student, wilson


def test_wilson_matches_a_textbook_value():
    # Newcombe 1998 (Statistics in Medicine 17:857), 15 of 148
    low, high = wilson(15, 148)
    assert (round(low, 4), round(high, 4)) == (0.0624, 0.1605)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 20)[0] == 0.0
    assert wilson(20, 20)[1] == 1.0


@pytest.mark.parametrize(("rate", "trials"), [(0.05, 100), (0.3, 60), (0.5, 200), (0.95, 100)])
def test_wilson_covers(rate, trials):
    draw = np.random.default_rng(1)
    inside = 0
    for right in draw.binomial(trials, rate, 2000):
        low, high = wilson(int(right), trials)
        inside += low <= rate <= high
    assert 0.92 <= inside / 2000 <= 0.985


@pytest.mark.parametrize("problems", [5, 20, 100])
def test_bootstrap_covers_where_wilson_does_not(problems):
    """Eight samples a problem, very different problems: the samples are not independent."""
    draw = np.random.default_rng(2)
    inside = narrow = 0
    for trial in range(300):
        chances = draw.beta(0.3, 0.7, problems)
        means = draw.binomial(8, chances) / 8
        low, high = bootstrap(means.tolist(), resamples=500, seed=trial)
        inside += low <= 0.3 <= high
        low, high = wilson(means.sum() * 8, problems * 8)
        narrow += low <= 0.3 <= high
    assert inside / 300 >= 0.90
    assert narrow / 300 < 0.8


def test_bootstrap_is_repeatable_and_bounded():
    values = [0.0, 0.25, 1.0, 0.5]
    assert bootstrap(values) == bootstrap(values)
    low, high = bootstrap(values)
    assert 0.0 <= low <= np.mean(values) <= high <= 1.0
    assert bootstrap([]) == (0.0, 1.0)


def test_newcombe_matches_the_paper():
    # Newcombe 1998 (Statistics in Medicine 17:2635), table III, 36 12 2 0 of 50: method 10
    low, high = newcombe_paired(36, 12, 2, 0)
    assert (round(-high, 4), round(-low, 4)) == (0.0569, 0.3404)


def test_newcombe_covers():
    draw = np.random.default_rng(3)
    chances = [0.3, 0.1, 0.2, 0.4]
    inside = 0
    for counts in draw.multinomial(100, chances, 1000):
        low, high = newcombe_paired(*map(int, counts))
        inside += low <= 0.1 <= high
    assert 0.92 <= inside / 1000 <= 0.985


def test_sign_test_against_the_binomial():
    assert sign_test(0, 0) == 1.0
    assert sign_test(5, 5) == 1.0
    assert sign_test(0, 5) == pytest.approx(2 / 32)
    assert sign_test(8, 2) == pytest.approx(2 * sum(math.comb(10, i) for i in range(3)) / 1024)


def test_student_covers_and_knows_that_one_run_tells_nothing():
    assert student([0.5]) == (-math.inf, math.inf)
    low, high = student([0.4, 0.6])
    assert (round(low, 4), round(high, 4)) == (-0.7706, 1.7706)  # t = 12.7062, s / sqrt(2) = 0.1
    draw = np.random.default_rng(5)
    inside = 0
    for runs in draw.normal(0.3, 0.1, (2000, 3)):
        low, high = student(list(runs))
        inside += low <= 0.3 <= high
    assert 0.935 <= inside / 2000 <= 0.965


def test_problems_that_all_agree_do_not_claim_certainty():
    low, high = bootstrap([0.0] * 16, bounds=(-1.0, 1.0))
    assert (low, high) == (-wilson(0, 16)[1], wilson(0, 16)[1])
    assert bootstrap([0.0] * 16) == (0.0, wilson(0, 16)[1])
    low, high = bootstrap([0.5] * 10)
    assert low < 0.5 < high
    assert bootstrap([0.25])[1] > 0.8
    # a problem's value outside the bounds, as a weighted reward has it, is not pulled inside
    assert bootstrap([3.0] * 5)[1] == 3.0


def test_rare_changes_are_covered():
    """One problem in fifty changes by a half: most samples of 20 problems see no change at all."""
    draw = np.random.default_rng(4)
    inside = 0
    for trial in range(500):
        changes = np.where(draw.random(20) < 0.02, 0.5, 0.0)
        low, high = bootstrap(changes.tolist(), resamples=200, seed=trial, bounds=(-1.0, 1.0))
        inside += low <= 0.01 <= high
    assert inside / 500 >= 0.92
