"""wrong_traces: a seeded share of the training traces is wrong, and nothing else changes."""

from __future__ import annotations

import pytest

from trlmath.data.nano import NanoDataset
from trlmath.errors import DataError
from trlmath.grading import grade_responses

SIZES = {"train_size": 400, "eval_size": 40}


def graded(problems):
    grades = grade_responses([p.trace for p in problems], [p.answer for p in problems])
    assert all(grade.format == 1 for grade in grades)
    return [grade.answer for grade in grades]


def test_the_share_is_exact_and_every_chosen_trace_is_wrong():
    assert graded(NanoDataset(**SIZES).load("train")) == [1.0] * 400
    right = graded(NanoDataset(wrong_traces=0.4, **SIZES).load("train"))
    assert right.count(0.0) == 160
    assert graded(NanoDataset(wrong_traces=1.0, **SIZES).load("train")) == [0.0] * 400


def test_problems_golds_and_held_out_stay():
    clean, wrong = NanoDataset(**SIZES), NanoDataset(wrong_traces=0.4, **SIZES)
    for before, after in zip(clean.load("train"), wrong.load("train"), strict=True):
        assert (before.question, before.answer, before.solution, before.metadata) == (
            after.question,
            after.answer,
            after.solution,
            after.metadata,
        )
    assert clean.load("eval") == wrong.load("eval")


def test_the_same_traces_are_wrong_every_time_and_a_larger_share_contains_them():
    def wrong(share, seed=0):
        clean = NanoDataset(seed=seed, **SIZES).load("train")
        mixed = NanoDataset(seed=seed, wrong_traces=share, **SIZES).load("train")
        return {b.question: a.trace for b, a in zip(clean, mixed, strict=True) if a.trace != b.trace}

    assert wrong(0.4) == wrong(0.4)
    assert wrong(0.2).items() <= wrong(0.4).items()
    assert wrong(0.0) == {}


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(DataError, match="wrong_traces is"):
        NanoDataset(wrong_traces=share)
