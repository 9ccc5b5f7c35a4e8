"""recipes/expert_iteration.py as a user starts it: real processes, signals and engines."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import time
from functools import partial

import pytest
from launching import ROOT, command, environment, metrics
from launching import launch as launch_recipe

from trlmath.runs.metrics_table import find

launch = partial(launch_recipe, script="expert_iteration")
SMALL = [
    "expert_iteration.iterations=2",
    "expert_iteration.problems_per_iteration=16",
    "expert_iteration.epochs=1",
    "rollout.prompts_per_step=4",
    "batch.size=8",
    "evaluation.limit=8",
    "evaluation.chunk=4",
    "evaluation.settings=[{name: sampled}]",
]


def lines(directory, name):
    return [json.loads(line) for line in (directory / name).read_text().splitlines()]


def hashes(directory):
    names = [
        "checkpoints/final/model.safetensors",
        "traces.jsonl",
        "filters.jsonl",
        "evaluation/samples.jsonl",
    ]
    return {name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """An uninterrupted run of the default recipe, made small."""
    directory = tmp_path_factory.mktemp("expert") / "run"
    done = launch(*SMALL, f"run.dir={directory}")
    assert done.returncode == 0, done.stderr
    return directory, done


@pytest.mark.slow
def test_the_default_recipe_leaves_a_whole_run(straight):
    directory, done = straight
    assert "held-out problems" in done.stdout
    assert "Warning" not in done.stderr
    rows = metrics(directory)
    unknown = {name for row in rows for name in row if name != "step" and find(name) is None}
    assert not unknown
    assert [row["train/temperature"] for row in rows if "train/temperature" in row] == [1.0, 1.1]
    traces = lines(directory, "traces.jsonl")
    assert traces
    assert all(row["parts"]["both"] == 1.0 and row["trace"].endswith("</answer>") for row in traces)
    assert {entry["filter"] for entry in lines(directory, "filters.jsonl")} >= {"correct_answer"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "until", ["rollouts/iteration-000.parquet", "traces.jsonl", "state/000-weights.safetensors"]
)
def test_a_killed_run_goes_on_with_the_same_command(tmp_path, straight, until):
    directory = tmp_path / "run"
    arguments = [*SMALL, f"run.dir={directory}"]
    process = subprocess.Popen(
        command(*arguments, script="expert_iteration"),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 180
    while not (directory / until).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (directory / until).exists()
    assert not (directory / "checkpoints" / "final").exists()
    done = launch(*arguments)
    assert done.returncode == 0, done.stderr
    assert "resume   iteration 0" in done.stdout
    assert hashes(directory) == hashes(straight[0])


@pytest.mark.slow
def test_two_processes_sample_and_select_as_one_does(tmp_path, straight):
    directory = tmp_path / "run"
    done = launch(*SMALL, f"run.dir={directory}", processes=2)
    assert done.returncode == 0, done.stderr
    mine, theirs = lines(directory, "traces.jsonl"), lines(straight[0], "traces.jsonl")
    first = [[row for row in rows if row["trained_in"] == 0] for rows in (mine, theirs)]
    assert [row["trace"] for row in first[0]] == [row["trace"] for row in first[1]]
    assert first[0][0]["confidence"] == pytest.approx(first[1][0]["confidence"], rel=1e-4)
    losses = [[r["train/loss"] for r in metrics(d) if "train/loss" in r] for d in (directory, straight[0])]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=1e-3)
    assert len(lines(directory, "evaluation/samples.jsonl")) == 3 * 8


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-3), ("bfloat16", 0.15)])
def test_vllm_samples_from_the_weights_of_each_sft(tmp_path, dtype, allowed):
    directory = tmp_path / "run"
    done = launch(*SMALL, f"run.dir={directory}", "sampling.engine=vllm", f"model.dtype={dtype}")
    assert done.returncode == 0, done.stderr
    rows = metrics(directory)
    found = [row["engine/freshness"] for row in rows if "engine/freshness" in row]
    assert len(found) == 3  # before, and after each SFT
    assert max(found) < allowed


@pytest.mark.slow
def test_a_dataset_without_problems_is_one_readable_line(tmp_path):
    (tmp_path / "none.jsonl").write_text("", encoding="utf-8")
    done = launch(*SMALL, f"run.dir={tmp_path / 'run'}", f"data.train={tmp_path / 'none.jsonl'}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "none.jsonl" in done.stderr
