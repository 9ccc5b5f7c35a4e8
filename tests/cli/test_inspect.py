"""trlmath data inspect: a recipe's rows as SFT would train on them."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from trlmath.cli import cli

RECIPE = """
data: {train: {name: nano, options: {train_size: 40, wrong_traces: 0.4}}, eval: null}
filters: [correct_answer]
evaluation: {enabled: false}
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    from datasets import config

    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "sft.yaml").write_text(RECIPE)
    return lambda *more: CliRunner().invoke(cli, ["data", "inspect", str(tmp_path / "sft.yaml"), *more])


def test_rows_counts_and_drops(run, tmp_path):
    result = run("-n", "2", "data.train_size=16")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert sum(line.startswith("row ") for line in lines) == 2
    assert sum(line.startswith("trained") for line in lines) == 2
    assert any(line.startswith("16 examples of 40 rows; ") for line in lines)
    assert "16 dropped: correct_answer: wrong answer: format_only (16)" in lines
    assert list((tmp_path / "cache" / "trlmath").glob("*.arrow"))


def test_mistakes_are_errors_without_a_traceback(run):
    result = run("batch.max_length=30")
    assert result.exit_code == 1
    assert "prompt alone fills 30 tokens: every label masked (24)" in result.output
    assert "not read by sft" in run("rollout.group_size=4").output
    assert "each group" in run("filters.1=zero_spread").output
