"""`accelerate launch recipes/grpo.py` as a user runs it: real processes, real files, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from launching import ROOT, command, environment, launch, metrics

SMALL = ["trainer.max_steps=2", "rollout.prompts_per_step=4", "rollout.group_size=4", "evaluation.limit=8"]


@pytest.mark.slow
def test_the_default_recipe_leaves_a_whole_run(tmp_path):
    directory = tmp_path / "run"
    done = launch(*SMALL, f"run.dir={directory}")
    assert done.returncode == 0, done.stderr
    assert "held-out problems" in done.stdout
    assert "Warning" not in done.stderr
    rows = metrics(directory)
    training = [row for row in rows if "train/loss" in row]
    assert [row["step"] for row in training] == [1, 2]
    for key in ("reward", "format", "answer", "both", "loss", "grad_norm"):
        assert f"train/{key}" in training[0], sorted(training[0])
    for phase in ("generate", "grade", "update", "step"):
        assert training[0][f"time/{phase}"] >= 0
    assert [row["step"] for row in rows if "eval/both" in row] == [0, 2]
    assert [row["step"] for row in rows if "eval_greedy/both" in row] == [0, 2]
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    samples = [
        json.loads(line) for line in (directory / "evaluation" / "samples.jsonl").read_text().splitlines()
    ]
    assert len(samples) == 8 * 2 * 2
    assert len({(s["setting"], s["problem"], s["sample"]) for s in samples}) == len(samples)

    from transformers import AutoModelForCausalLM, AutoTokenizer

    final = directory / "checkpoints" / "final"
    model, tokenizer = AutoModelForCausalLM.from_pretrained(final), AutoTokenizer.from_pretrained(final)
    assert model.num_parameters() > 1e6
    assert tokenizer.decode(tokenizer("1 + 1 = 2")["input_ids"]) == "1 + 1 = 2"

    # the resolved recipe is a recipe: it runs again, to the same checks
    again = launch("--config", str(directory / "recipe.yaml"), "--dry-run", "run.dir=null")
    assert again.returncode == 0, again.stderr
    # and a second run does not write into the first
    refused = launch(*SMALL, f"run.dir={directory}")
    assert refused.returncode == 1
    assert "already holds a run" in refused.stderr


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.parametrize(
    ("dtype", "allowed", "more"),
    [
        ("float32", 1e-3, ()),
        ("bfloat16", 0.15, ()),
        ("float32", 1e-3, ("model.lora={r: 4, target_modules: all-linear}", "trainer.learning_rate=1e-2")),
    ],
    ids=["float32", "bfloat16", "an adapter"],
)
def test_training_on_vllm_generates_from_the_new_weights(tmp_path, dtype, allowed, more):
    directory = tmp_path / "run"
    done = launch(*SMALL, f"run.dir={directory}", "sampling.engine=vllm", f"model.dtype={dtype}", *more)
    assert done.returncode == 0, done.stderr
    training = [row for row in metrics(directory) if "train/loss" in row]
    assert len(training) == 2
    for row in training:
        assert row["engine/freshness"] < allowed
        assert row["engine/sampling_logp_difference/mean"] < allowed


@pytest.mark.slow
def test_two_processes_train_together(tmp_path):
    directory = tmp_path / "run"
    done = launch(*SMALL, f"run.dir={directory}", "rollout.microbatch_tokens=512", processes=2)
    assert done.returncode == 0, done.stderr
    assert json.loads((directory / "manifest.json").read_text())["processes"] == 2
    training = [row for row in metrics(directory) if "train/loss" in row]
    assert [row["step"] for row in training] == [1, 2]
    assert training[0]["train/tokens"] > 0
    samples = [
        json.loads(line) for line in (directory / "evaluation" / "samples.jsonl").read_text().splitlines()
    ]
    assert len({(s["setting"], s["problem"]) for s in samples}) == len(samples) == 8 * 2 * 2
    import pyarrow.parquet

    rollouts = pyarrow.parquet.read_table(directory / "rollouts" / "step-000000.parquet").to_pylist()
    assert len(rollouts) == 16
    assert len({row["question"] for row in rollouts}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_ctrl_c_leaves_what_was_written_readable(tmp_path, processes):
    directory = tmp_path / "run"
    overrides = ["trainer.max_steps=500", *SMALL[1:3], "evaluation.enabled=false", f"run.dir={directory}"]
    process = subprocess.Popen(
        command(*overrides, processes=processes),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not (directory / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process it has started
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "interrupted" in stderr
    assert all("step" in row for row in metrics(directory))
    assert json.loads((directory / "manifest.json").read_text())["status"] == "interrupted"


@pytest.mark.slow
def test_an_error_is_one_readable_line(tmp_path):
    done = launch("sampling.temprature=0.7", f"run.dir={tmp_path / 'run'}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "temperature" in done.stderr
