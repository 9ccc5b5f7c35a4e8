"""Two evaluations compared: pairs whatever the order, exact tests, flips."""

from __future__ import annotations

import json
import random

import pytest
from click.testing import CliRunner

from trlmath.cli import cli
from trlmath.errors import DataError
from trlmath.evaluation.diff import ALIKE, BOOTSTRAP, MCNEMAR, NEWCOMBE, SIGN, compare, load_side
from trlmath.evaluation.sample import Sample, problem_key
from trlmath.evaluation.store import append_samples


def row(problem, right, sample=0, question=None, setting="s"):
    """A row of a problem that is right or wrong."""
    question = question or f"q{problem}"
    return Sample(
        setting, problem, sample, problem_key(question, "1"), question, "1", "", "c", 3, "stop",
        float(right), {"both": float(right)}, "both" if right else "format_only",
    )  # fmt: skip


def test_one_sample_a_problem():
    first = [row(i, right) for i, right in enumerate([1, 1, 1, 0, 0, 0, 0, 0, 0])]
    second = [row(i, right) for i, right in enumerate([1, 1, 0, 1, 1, 1, 1, 1, 0])]
    found = compare(first, second)
    assert (found.better, found.worse, found.same) == (5, 1, 3)
    assert (found.test, found.interval) == (MCNEMAR, NEWCOMBE)
    assert found.p_value == pytest.approx(2 * (1 + 6) / 64)
    assert found.difference.value == pytest.approx(4 / 9)
    assert found.difference.low < 4 / 9 < found.difference.high
    assert [f.question for f in found.flips] == ["q3", "q4", "q5", "q6", "q7", "q2"]


def test_the_order_and_number_of_problems_do_not_matter():
    first = [row(i, i % 2) for i in range(20)]
    expected = compare(first, [row(i, i % 3 == 0) for i in range(20)])
    numbers = list(range(20))
    random.Random(0).shuffle(numbers)
    moved = [row(place, i % 3 == 0, question=f"q{i}") for place, i in enumerate(numbers)]
    moved.append(row(20, 1, question="another"))
    found = compare(first, moved)
    assert (found.better, found.worse, found.only_second) == (expected.better, expected.worse, 1)
    assert found.p_value == expected.p_value


def test_a_problem_that_stands_twice_is_compared_twice():
    first = [row(0, 1, question="same"), row(1, 0, question="same")]
    second = [row(0, 1, question="same"), row(1, 1, question="same")]
    assert (compare(first, second).problems, compare(first, second).better) == (2, 1)


def test_several_samples_a_problem():
    first = [row(p, s < 1, s) for p in range(6) for s in range(4)]
    second = [row(p, s < (3 if p else 0), s) for p in range(6) for s in range(4)]
    found = compare(first, second)
    assert (found.test, found.interval) == (SIGN, BOOTSTRAP)
    assert (found.better, found.worse) == (5, 1)
    assert found.difference.value == pytest.approx((5 * 0.5 - 0.25) / 6)
    assert found.flips[0].second_sample.parts["both"] == 1.0
    assert found.flips[-1].question == "q0"


def test_what_cannot_be_compared(tmp_path):
    with pytest.raises(DataError, match="no problem in common"):
        compare([row(0, 1)], [row(0, 1, question="other")])
    with pytest.raises(DataError, match="no completion has the part 'bot'.*'both'"):
        compare([row(0, 1)], [row(0, 1)], "bot")
    append_samples(tmp_path / "evaluation" / "samples.jsonl", [row(0, 1), row(0, 1, setting="t")])
    with pytest.raises(DataError, match="several settings: s, t"):
        load_side(tmp_path)
    with pytest.raises(DataError, match="no setting 'x'"):
        load_side(tmp_path, "x")
    assert len(load_side(tmp_path, "t")) == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no samples.jsonl"):
        load_side(tmp_path / "empty")


def test_the_command_compares_two_settings_of_one_run(tmp_path):
    rows = [row(i, i < 2, setting="before") for i in range(8)] + [
        row(i, i < 5, setting="after") for i in range(8)
    ]
    append_samples(tmp_path / "evaluation" / "samples.jsonl", rows)
    out = tmp_path / "diff.json"
    arguments = ["--setting", "before", "--second-setting", "after", "--out", str(out), "--show", "2"]
    done = CliRunner().invoke(cli, ["evaluate", "diff", str(tmp_path), str(tmp_path), *arguments])
    assert done.exit_code == 0, done.output
    assert "right in B, not in A (3)" in done.output
    assert "and 1 more" in done.output
    told = json.loads(out.read_text())
    assert (told["better"], told["worse"], told["p_value"], len(told["flips"])) == (3, 0, 0.25, 3)


def test_nothing_changed_does_not_claim_that_nothing_could():
    rows = [row(p, s < p % 3, s) for p in range(12) for s in range(4)]
    found = compare(rows, rows)
    assert (found.better, found.worse, found.p_value) == (0, 0, 1.0)
    assert found.difference.low < -0.1
    assert found.difference.high > 0.1
    assert found.interval == ALIKE
