"""Runs that are killed go on with the same command, and end to the bit as one that never was.

Through the real launcher; test_kills.py kills more often, at random moments.
"""

from __future__ import annotations

import hashlib
import json
import re
import signal
import subprocess
import sys
import time

import psutil
import pyarrow.parquet
import pytest
from launching import ROOT, command, environment, launch, metrics

from trlmath.recipe import load_recipe
from trlmath.runs.read import read_run

pytestmark = pytest.mark.slow

GRPO = [
    "trainer.max_steps=6",
    "run.checkpoint_every=2",
    "evaluation.limit=8",
    "evaluation.every=3",
    "rollout.prompts_per_step=2",
    "rollout.group_size=4",
    "sampling.max_tokens=48",
    "run.report=false",
    "run.keep_best=eval/both",
]


def told(directory):
    """What a run has computed, apart from how long it took."""
    rows = [
        {k: v for k, v in row.items() if not k.startswith(("time/", "memory/"))} for row in metrics(directory)
    ]
    files = {
        name: hashlib.sha256((directory / name).read_bytes()).hexdigest()
        for name in ("evaluation/samples.jsonl", "checkpoints/final/model.safetensors")
    }
    rollouts = (
        sorted(p.name for p in (directory / "rollouts").glob("*"))
        if (directory / "rollouts").exists()
        else []
    )
    return rows, files, rollouts


def column(directory, name):
    """One column of all rollouts, in order."""
    files = sorted((directory / "rollouts").glob("*.parquet"))
    return [value for file in files for value in pyarrow.parquet.read_table(file)[name].to_pylist()]


def weights_of(directory):
    return (directory / "checkpoints" / "final" / "model.safetensors").read_bytes()


def steps_of(directory):
    file = directory / "metrics.jsonl"
    return sum("train/loss" in row for row in metrics(directory)) if file.exists() else 0


def run_until(directory, steps, *arguments, sent=signal.SIGKILL, processes=1):
    """Start the run and send a signal once so many steps are logged; its output and status.

    SIGKILL goes to all its processes, SIGTERM to the launcher alone.
    """
    process = subprocess.Popen(
        command(*arguments, f"run.dir={directory}", processes=processes),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 400
    there = directory / "manifest.json"
    while (not there.exists() or steps_of(directory) < steps) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert process.poll() is None, process.communicate()[0][-3000:]
    if sent == signal.SIGKILL:
        # the launcher of several processes puts them in groups of their own: all of them, as a power cut does
        named = f"run.dir={directory}"
        for one in psutil.process_iter(["cmdline"]):
            if named in (one.info["cmdline"] or ()):
                one.kill()
    else:
        process.send_signal(sent)
    return process.communicate(timeout=120)[0], process.returncode


@pytest.mark.timeout(600)
def test_a_killed_run_ends_to_the_bit_as_an_unbroken_one(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    done = launch(*GRPO, f"run.dir={whole}")
    assert done.returncode == 0, done.stderr[-3000:]
    for steps in (0, 5):
        run_until(broken, steps, *GRPO)
        assert json.loads((broken / "manifest.json").read_text())["status"] == "running"
        assert read_run(broken).status == "killed"
    done = launch(*GRPO, f"run.dir={broken}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"resume   after step [2468]\b", done.stdout)
    assert len(re.findall(r"^train  (\d+)/\1\b", done.stdout, re.M)) == 1  # the last step is told once
    assert told(broken) == told(whole)
    assert json.loads((broken / "manifest.json").read_text())["status"] == "finished"


@pytest.mark.timeout(600)
def test_two_processes_go_on_too(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert launch(*GRPO, f"run.dir={whole}", processes=2).returncode == 0
    run_until(broken, 3, *GRPO, processes=2)
    done = launch(*GRPO, f"run.dir={broken}", processes=2)
    assert done.returncode == 0, done.stderr[-3000:]
    assert told(broken) == told(whole)


def test_what_is_damaged_is_told_by_two_processes_in_the_same_words(tmp_path):
    directory = tmp_path / "run"
    (directory / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    recipe = load_recipe("nano/grpo", [*GRPO, f"run.dir={directory}"])
    (directory / "recipe.yaml").write_text(recipe.to_yaml())
    (directory / "manifest.json").write_text(json.dumps({"status": "running"}))
    done = launch(*GRPO, f"run.dir={directory}", processes=2)
    assert done.returncode != 0
    assert re.search(r"^error: no checkpoint in .* is whole, so the run cannot go on", done.stderr, re.M)
    # the other one has met no lost connection
    assert "gloo" not in done.stderr
    assert "another process of this run is gone" not in done.stderr


@pytest.mark.vllm
@pytest.mark.timeout(900)
def test_a_run_with_vllm_in_process_goes_on_to_the_bit_too(tmp_path):
    # it draws from the random state of this process, which is in the checkpoint
    arguments = [*GRPO, "sampling.engine=vllm", "trainer.max_steps=4", "run.checkpoint_every=1"]
    arguments += ["evaluation.limit=2", "evaluation.every=0", "run.keep_best=null"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    done = launch(*arguments, f"run.dir={whole}", timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    run_until(broken, 2, *arguments)
    done = launch(*arguments, f"run.dir={broken}", timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"resume   after step [123]\b", done.stdout)
    for name in ("prompt", "completion"):
        assert column(broken, name) == column(whole, name)
    assert weights_of(broken) == weights_of(whole)
    # the final model is one that vLLM loads by itself
    words = ["evaluate", "--model", str(whole / "checkpoints" / "final"), "--dataset", "nano", "--limit", "2"]
    words += [
        "--prompt",
        "r1_zero",
        "--engine",
        "vllm",
        "--max-tokens",
        "16",
        "--out",
        str(tmp_path / "eval"),
    ]
    subprocess.run([sys.executable, "-m", "trlmath", *words], env=environment(), timeout=400, check=True)


@pytest.mark.timeout(600)
def test_sigterm_to_the_launcher_ends_the_step_saves_and_the_run_goes_on(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    arguments = [*GRPO, "run.checkpoint_every=50"]
    assert launch(*arguments, f"run.dir={whole}").returncode == 0
    output, status = run_until(broken, 2, *arguments, sent=signal.SIGTERM)
    # the launcher itself ends at the signal; the run hears of it and ends its step
    assert status == -signal.SIGTERM, output
    assert "stopping after this step, with a checkpoint" in output
    assert f"go on    with the same command and run.dir={broken}" in output
    saved = sorted(p.name for p in (broken / "checkpoints").glob("checkpoint-*"))
    assert len(saved) == 1
    assert json.loads((broken / "manifest.json").read_text())["status"] == "interrupted"
    done = launch(*arguments, f"run.dir={broken}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"resume   after step {saved[0].removeprefix('checkpoint-')}" in done.stdout
    assert told(broken) == told(whole)


@pytest.mark.timeout(600)
def test_a_spoiled_checkpoint_is_passed_over_and_another_recipe_refused(tmp_path):
    broken = tmp_path / "broken"
    run_until(broken, 5, *GRPO)
    newest = broken / "checkpoints" / "checkpoint-4"
    with (newest / "optimizer.pt").open("r+b") as file:
        file.seek(100)
        file.write(b"spoiled")
    other = launch(*GRPO, "trainer.learning_rate=1e-5", f"run.dir={broken}")
    assert other.returncode == 1
    assert "unfinished run of another recipe: trainer.learning_rate was 0.0002, is 1e-05" in other.stderr
    done = launch(*GRPO, f"run.dir={broken}")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "checkpoint-4 is passed over: optimizer.pt is not what was written" in done.stdout
    # of the evaluation after step 3 there is one too, if it was the best so far (run.keep_best)
    assert re.search(r"resume   after step [23]\b", done.stdout)
    again = launch(*GRPO, f"run.dir={broken}")
    assert "already holds a run" in again.stderr
