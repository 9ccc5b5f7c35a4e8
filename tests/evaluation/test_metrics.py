"""pass@k and maj@k against brute force over every subset."""

from __future__ import annotations

import math
from itertools import combinations

import pytest

from trlmath.evaluation import metrics
from trlmath.evaluation.metrics import majority_at_k, pass_at_k, quantile, vote, vote_sizes


@pytest.mark.parametrize("n", range(1, 8))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_one(n):
    for right in range(n + 1):
        samples = [True] * right + [False] * (n - right)
        for k in range(1, n + 1):
            subsets = list(combinations(samples, k))
            assert pass_at_k(right, n, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_does_not_overflow():
    assert pass_at_k(1, 10_000, 5_000) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="k=3, n=2"):
        pass_at_k(1, 2, 3)


def test_majority_by_hand():
    votes = ["4", "4", "5", None]
    right = [True, True, False, False]
    assert majority_at_k(votes, right, 4) == 1.0
    # one of four: right, right, wrong, none
    assert majority_at_k(votes, right, 1) == 0.5
    # pairs: 44 45 4- 45 4- 5-  -> 1, 1/2, 1, 1/2, 1, 0
    assert majority_at_k(votes, right, 2) == pytest.approx(4 / 6)
    assert majority_at_k([None, None], [False, False], 2) == 0.0


def test_right_answers_vote_together_however_written():
    votes = ["1/2", "0.5", "3", "3", r"\frac12"]
    right = [True, True, False, False, True]
    assert majority_at_k(votes, right, 5) == 1.0


def test_majority_is_drawn_where_there_are_too_many_subsets(monkeypatch):
    votes = ["a"] * 7 + ["b"] * 5
    right = [True] * 7 + [False] * 5
    monkeypatch.setattr(metrics, "SUBSETS", 10**6)
    exact = majority_at_k(votes, right, 5)
    monkeypatch.setattr(metrics, "SUBSETS", 600)
    drawn = majority_at_k(votes, right, 5)
    assert drawn == majority_at_k(votes, right, 5)  # seeded
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=0.07)


def test_votes():
    assert vote(" $1 000$ ") == vote("1000")
    assert vote("") is None
    assert vote(None) is None
    assert vote_sizes(1) == [1]
    assert vote_sizes(8) == [1, 2, 4, 8]
    assert vote_sizes(6) == [1, 2, 4, 6]


def test_quantiles():
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile([0, 10], 0.9) == pytest.approx(9)
    assert math.isnan(quantile([], 0.5))
