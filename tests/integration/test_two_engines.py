"""Two runs with a vLLM of their own live on one host, at the same time, without being told of each other."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
from contextlib import suppress

import pytest
from launching import ROOT, command, environment, metrics

SMALL = [
    *("sampling.engine=vllm", "sampling.max_tokens=8", "rollout.prompts_per_step=2", "rollout.group_size=2"),
    *("trainer.max_steps=2", "evaluation.enabled=false", "run.report=false", "checks.all_truncated=off"),
]


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here")
def test_two_colocated_runs_share_a_host(tmp_path):
    runs = [
        subprocess.Popen(
            command(*SMALL, f"run.dir={tmp_path / name}"),
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for name in ("one", "two")
    ]
    try:
        # they start within a moment of each other and take about alike: both engines are up at once
        told = [run.communicate(timeout=250)[1] for run in runs]
    finally:
        for run in runs:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)  # the launcher and its process
    assert [run.returncode for run in runs] == [0, 0], told
    for name in ("one", "two"):
        rows = [row for row in metrics(tmp_path / name) if "train/loss" in row]
        assert [row["step"] for row in rows] == [1, 2]
        assert rows[-1]["engine/freshness"] < 1e-3
