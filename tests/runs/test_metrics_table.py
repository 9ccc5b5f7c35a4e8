"""The table of metrics: its page is up to date, and a real run logs nothing that is not in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from launching import ROOT, environment, launch

from trlmath.runs.metrics_table import TABLE, all_metrics, find, markdown


def test_the_page_is_up_to_date():
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert page == markdown(), "run `make docs`"


def test_names_are_unique_and_grouped():
    names = [metric.name for metric in all_metrics()]
    assert len(names) == len(set(names)) > 40
    for group, metrics in TABLE.items():
        heads = {head.rstrip("/") for head in re.findall(r"`(\w+)/", group)}
        assert {m.name.split("/")[0] for m in metrics} <= heads, group


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("train/category/a/b [red]\n", "train/category/<category>"),
        ("eval_greedy/category/both", "eval/category/<category>"),
        ("eval_t0-7/pass@4/both", "eval/pass@<k>/<part>"),
        ("train/completions/mean_length", "train/completions/mean_length"),
        ("train/rewards/my.reward/std", "train/rewards/<reward>/std"),
    ],
)
def test_placeholders(name, row):
    assert find(name).name == row


def test_what_the_table_does_not_hold():
    assert find("train/surprise") is None
    assert find("train/surprise", parts=["surprise"]).name == "train/<part>"
    assert find("reward") is None
    assert find("train/time/step") is None


def unknown(file):
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {name for row in rows for name in row if name != "step" and find(name) is None}, rows


@pytest.mark.slow
def test_a_grpo_run_logs_nothing_else(tmp_path):
    directory = tmp_path / "run"
    done = launch(
        "trainer.max_steps=2",
        "trainer.beta=0.01",
        "rollout.prompts_per_step=4",
        "rollout.group_size=4",
        "filters=[zero_spread]",
        "evaluation.limit=8",
        "evaluation.settings.0.n=2",
        f"run.dir={directory}",
    )
    assert done.returncode == 0, done.stderr
    strange, rows = unknown(directory / "metrics.jsonl")
    assert not strange, f"give them a row in trlmath/runs/metrics_table.py: {sorted(strange)}"
    assert any("train/kl" in row for row in rows)
    assert any("memory/host" in row for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "overrides"),
    [
        ("sft", ["trainer.max_steps=2", "batch.size=8"]),
        ("expert_iteration", ["expert_iteration.iterations=2", "expert_iteration.problems_per_iteration=16"]),
    ],
)
def test_nor_does_training_on_traces(tmp_path, script, overrides):
    directory = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, f"recipes/{script}.py", *overrides, "evaluation.limit=8", f"run.dir={directory}"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    strange, rows = unknown(directory / "metrics.jsonl")
    assert not strange, f"give them a row in trlmath/runs/metrics_table.py: {sorted(strange)}"
    assert any("train/mean_token_accuracy" in row for row in rows)
    assert (directory / "report.html").stat().st_size > 100_000
