"""Votes: equal answers are one vote however written, wrong ones too."""

from __future__ import annotations

import time

from trlmath.evaluation.votes import votes


def test_equal_answers_are_one_vote():
    labels = votes(["0.5", r"\frac12", "1/2", "50%", "3", None, "", "$3$", "x = 3", "Tuesday", "tuesday"])
    assert len(set(labels[:4])) == 1
    assert labels[5:7] == [None, None]
    assert labels[4] == labels[7] == labels[8]
    assert labels[9] == labels[10]
    assert len(set(labels) - {None}) == 3


def test_different_answers_stay_apart_and_odd_ones_do_not_raise():
    odd = ["{{{", "\\frac", "\ud83d", "x" * 10_000, "9**9**9", "1/0", "数学", "\\boxed{"]
    assert len(set(votes(odd))) == len(odd)


def test_the_most_frequent_way_to_write_it_is_the_label():
    assert votes(["1/2", "0.5", "0.5"]) == ["0.5"] * 3


def test_a_large_n_stays_cheap():
    started = time.perf_counter()
    labels = votes([f"{i}/7" for i in range(400)])
    assert time.perf_counter() - started < 5
    assert len(set(labels)) == 400
