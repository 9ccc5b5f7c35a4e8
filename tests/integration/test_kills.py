"""A small sample of the kill campaign (tests/campaigns), each time at other random moments."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

CAMPAIGNS = Path(__file__).resolve().parents[1] / "campaigns"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def campaign(script, folder, *arguments):
    """Run a campaign with a new seed, which its output names; what it printed."""
    command = [sys.executable, str(CAMPAIGNS / script), "--dir", str(folder), *arguments]
    command += ["--seed", str(random.SystemRandom().randrange(10**6))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr[-3000:]}"
    return done.stdout


def test_runs_of_every_recipe_end_as_if_never_killed(tmp_path):
    told = campaign("kills.py", tmp_path, "--kills", "4", "--each")
    assert "expert_iteration-3: killed in" in told
    assert "\nidentical " in told


def test_two_processes_do_too(tmp_path):
    assert "\nidentical " in campaign(
        "kills.py", tmp_path, "--kills", "1", "--recipe", "grpo", "--processes", "2"
    )


def test_sigterm_loses_no_step_and_a_second_one_ends_at_once(tmp_path):
    told = campaign("signals.py", tmp_path, "--recipe", "sft")
    assert "nothing lost, and identical" in told
