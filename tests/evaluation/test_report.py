"""Numbers of a report, by hand; categories and outcomes always add up."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trlmath.evaluation.advice import ADVICE, advice
from trlmath.evaluation.intervals import wilson
from trlmath.evaluation.report import BOOTSTRAP, WILSON, summarise
from trlmath.evaluation.sample import Sample, problem_key
from trlmath.grading import CATEGORIES

R1 = {"both": (1, 1), "format_only": (1, 0), "answer_only": (0, 1), "no_think_end": (0, 0)}


def row(
    problem, sample=0, category="both", tokens=10, finish="stop", logprob=-5.0, extracted=None, **metadata
):
    """A row of the r1_zero reward."""
    parts = {"format": None, "answer": None, "both": None}
    if category in R1:
        form, answer = R1[category]
        parts = {"format": float(form), "answer": float(answer), "both": float(form and answer)}
    return Sample(
        setting="s",
        problem=problem,
        sample=sample,
        key=problem_key(f"q{problem}", "1"),
        question=f"q{problem}",
        gold="1",
        prompt="",
        completion="c",
        tokens=tokens,
        finish_reason=finish,
        reward=parts["both"],
        parts=parts,
        category=category,
        extracted=extracted,
        logprob=logprob,
        metadata=metadata,
    )


def test_one_sample_a_problem():
    rows = [
        row(0),
        row(1, category="format_only"),
        row(2, category="answer_only", tokens=30, finish="length"),
    ]
    rows.append(row(3, category="no_think_end"))
    report = summarise("s", rows, seconds=2.0)
    assert (report.problems, report.completions, report.interval) == (4, 4, WILSON)
    both, answer = report.rates["both"], report.rates["answer"]
    assert both.value == 0.25
    assert (both.low, both.high) == wilson(1, 4)
    assert answer.value == 0.5
    assert report.outcomes == {"both": 1, "format_only": 1, "answer_only": 1, "neither": 1, "unscored": 0}
    assert report.mean_reward.value == 0.25
    assert report.truncated == 0.25
    assert report.tokens_per_second == 30.0
    assert report.mean_tokens == 15.0
    assert report.entropy == pytest.approx(20 / 60)
    assert report.lengths["right"].completions == 1
    assert report.lengths["wrong"].mean == pytest.approx(50 / 3)
    assert report.pass_at_k["both"][0].value == 0.25


def test_several_samples_a_problem():
    rows = [
        row(0, i, category="both" if i < 2 else "format_only", extracted=["1", "1.0", "2", "2.0"][i])
        for i in range(4)
    ]
    rows += [row(1, i, category="format_only", extracted="3") for i in range(4)]
    report = summarise("s", rows)
    assert report.interval == BOOTSTRAP
    assert report.rates["both"].value == 0.25
    passes = [rate.value for rate in report.pass_at_k["both"]]
    assert passes == pytest.approx([0.25, (1 - 1 / 6) / 2, 0.5, 0.5])
    assert report.majority_at_k[4].value == 0.25  # a tie in the first problem counts half
    assert set(report.majority_at_k) == {1, 2, 4}


def test_an_unscorable_completion_counts_and_no_mean_is_made_of_it():
    report = summarise("s", [row(0), row(1, category="unparseable_gold")])
    assert report.rates["both"].value == 0.5
    assert report.unscorable == 1
    assert report.mean_reward.value == 1.0
    assert report.outcomes["unscored"] == 1
    assert sum(report.outcomes.values()) == 2


def test_by_field():
    rows = [row(0, level=1), row(1, category="format_only", level=1), row(2, level=2), row(3)]
    found = summarise("s", rows, by=["level"]).by["level"]
    assert {value: (part.problems, part.rates["both"].value) for value, part in found.items()} == {
        "1": (2, 0.5),
        "2": (1, 1.0),
        "(none)": (1, 1.0),
    }


def test_no_entropy_where_it_has_no_meaning():
    assert summarise("s", [row(0)], greedy=True).entropy is None
    assert summarise("s", [row(0), row(1, logprob=None)]).entropy is None


def test_equal_problems_do_not_claim_certainty():
    rate = summarise("s", [row(p, i, category="format_only") for p in range(20) for i in range(4)]).rates[
        "both"
    ]
    assert (rate.value, rate.low, rate.high) == (0.0, *wilson(0, 20))


def test_nothing_at_all():
    report = summarise("s", [])
    assert report.completions == 0
    assert math.isnan(report.lengths["all"].mean)
    json.dumps(report.to_dict(), allow_nan=False)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["uncategorised", "own", *CATEGORIES]))))
def test_categories_and_outcomes_add_up(cells):
    report = summarise("s", [row(p, i, category=c) for i, (p, c) in enumerate(cells)])
    assert sum(report.categories.values()) == report.completions == len(cells)
    assert sum(report.outcomes.values()) == len(cells)
    json.dumps(report.to_dict(), allow_nan=False)


def test_every_category_of_the_grader_has_advice():
    assert set(CATEGORIES) <= set(ADVICE)
    assert advice("no_think_end").count(":") >= 1
    assert "plugin" in advice("sideways")
