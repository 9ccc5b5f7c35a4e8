"""Start a recipe script as a user does, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def command(*arguments, processes=1, script="grpo"):
    """The command line of a recipe script under `accelerate launch`."""
    where = ["--cpu"] if processes == 1 else ["--multi_gpu"]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--quiet", *where]
    launch += ["--num_processes", str(processes), "--num_machines", "1", "--mixed_precision", "no"]
    launch += ["--dynamo_backend", "no", "--main_process_port", "0"]  # a free port
    return [*launch, f"recipes/{script}.py", *arguments]


def environment():
    """One thread a process, no GPU: the same run on every machine."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def launch(*arguments, processes=1, timeout=240, script="grpo"):
    """Run the recipe to its end and return the finished process."""
    return subprocess.run(
        command(*arguments, processes=processes, script=script),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def metrics(directory):
    """The rows of a run's metrics.jsonl."""
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
