"""`trlmath study` as a user types it, with the real recipe scripts; `trlmath recipes` tells studies apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from trlmath.cli import cli

STUDY = """
evaluation:
  limit: 8
  settings: [{name: greedy, temperature: 0.0}]
runs:
  - {name: zero-shot, algorithm: evaluate, recipe: nano/evaluate}
  - name: sft
    algorithm: sft
    recipe: nano/sft
    set: {trainer.max_steps: 1, data.train_size: 64}
  - name: grpo
    algorithm: grpo
    recipe: nano/grpo
    set:
      model.path: run:sft
      trainer.max_steps: 1
      rollout.prompts_per_step: 2
      rollout.group_size: 4
  - name: broken
    algorithm: grpo
    recipe: nano/grpo
    set: {data.train: no-such-file.jsonl}
  - {name: after-broken, algorithm: evaluate, recipe: nano/evaluate, set: {model.path: run:broken}}
"""


def run(folder, *arguments):
    """The command in a process of its own, in `folder`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, "-m", "trlmath", "study", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)  # four trainings and evaluations, each in a process of its own
def test_a_study_of_real_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY)
    done = run(tmp_path, "mine.yaml", "--jobs", "2", "--dir", "out")
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    out = tmp_path / "out"
    for piece in (
        "mine.yaml: 5 runs, written to out",
        "finished grpo in",
        "failed   broken: exit status 1",
        "no-such-file.jsonl",
        "skipped  after-broken: it starts from broken",
        "greedy, 8 held-out problems",
        "not finished: broken, after-broken",
    ):
        assert piece in done.stdout, done.stdout
    record = json.loads((out / "study.json").read_text())
    assert {name: entry["status"] for name, entry in record["runs"].items()} == {
        "zero-shot": "finished", "sft": "finished", "grpo": "finished",
        "broken": "failed", "after-broken": "skipped",
    }  # fmt: skip
    rows = {row["name"]: row for row in record["tables"]["greedy"]}
    assert rows["grpo"]["difference"]["low"] <= rows["grpo"]["difference"]["value"]
    assert rows["grpo"]["measured"]["problems"] == 8
    assert "| grpo | grpo | 8 |" in (out / "table.md").read_text()
    page = (out / "report.html").read_text()
    assert "<title>" in page
    assert "grpo" in page
    assert f"path: {out}/sft/checkpoints/final" in (out / "grpo" / "recipe.yaml").read_text()

    before = {name: (out / name / "manifest.json").stat().st_mtime for name in ("zero-shot", "sft", "grpo")}
    again = CliRunner().invoke(cli, ["study", "mine.yaml", "--dir", str(out)])
    assert again.exit_code == 1
    assert "started  broken" in again.output
    assert "started  sft" not in again.output
    assert before == {name: (out / name / "manifest.json").stat().st_mtime for name in before}
    shown = CliRunner().invoke(cli, ["study", "mine.yaml", "--dir", "out", "--show"])
    assert shown.exit_code == 0
    assert "started" not in shown.output
    assert "held-out problems" in shown.output


def test_a_dry_run_starts_nothing_and_mistakes_have_no_traceback(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY)
    done = CliRunner().invoke(cli, ["study", "mine.yaml", "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "from sft, nano/grpo trainer.max_steps=1" in done.output
    assert "all of them with evaluation.limit=8" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
    wrong = CliRunner().invoke(
        cli, ["study", "mine.yaml", "sft:trainer.max_stps=1", "zero:evaluation.limit=2"]
    )
    assert wrong.exit_code == 1
    assert "no run and no algorithm of this study is called 'zero'. Did you mean 'zero-shot'" in wrong.output
    wrong = CliRunner().invoke(cli, ["study", "mine.yaml", "sft:trainer.max_stps=1"])
    assert "run 'sft': trainer.max_stps" in wrong.output
    assert "Did you mean 'max_steps'" in wrong.output


def test_studies_stand_beside_recipes(tmp_path):
    listed = CliRunner().invoke(cli, ["recipes", "list"]).output
    recipes, studies = listed.split("studies, several runs each")
    assert "nano/grpo " in recipes
    assert "nano/study" not in recipes
    assert "nano/study" in studies
    assert "ablations/std" in studies
    done = CliRunner().invoke(cli, ["recipes", "copy", str(tmp_path), "nano/road", "nano/grpo"])
    assert done.exit_code == 0
    assert (tmp_path / "nano" / "road.yaml").is_file()
    dry = CliRunner().invoke(cli, ["study", str(tmp_path / "nano" / "road.yaml"), "--dry-run"])
    assert dry.exit_code == 0, dry.output
