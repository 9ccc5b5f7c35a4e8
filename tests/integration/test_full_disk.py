"""A real run on a small disk: full in the middle of a save, then larger, and read-only."""

from __future__ import annotations

import re

import pytest
from launching import ROOT, command, environment
from small_disk import on_small_disk

# a checkpoint of nano takes 13 MB: the second one, beside the first, fills 24
SFT = [
    "trainer.max_steps=6",
    "run.checkpoint_every=2",
    "run.keep_last=1",
    "evaluation.enabled=false",
    "data.train_size=64",
    "batch.size=8",
    "run.report=false",
    "run.report_to=[]",
]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_full_disk_keeps_the_last_checkpoint_and_with_room_the_run_goes_on(tmp_path, monkeypatch):
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    disk = tmp_path / "disk"
    run = command(*SFT, f"run.dir={disk / 'run'}", script="sft")
    look = ["sh", "-c", f"ls -A {disk}/run/checkpoints; cat {disk}/run/metrics.jsonl | wc -l"]
    full, left, on, final, readonly = on_small_disk(
        disk, "24m", run, look, "100m", run, look, "ro", command(f"run.dir={disk / 'new'}", script="sft")
    )
    assert full[1] == 1
    assert "error: the run's files cannot be written (is the disk full?)" in full[0]
    assert "start the same command again" in full[0]
    assert "Traceback" not in full[0]
    assert "checkpoint-2" in left[0].splitlines()
    assert on[1] == 0, on[0]
    assert re.search(r"^resume   after step 2$", on[0], re.M)
    assert final[0].splitlines() == ["README.md", "checkpoint-6", "final", "6"]
    assert readonly[1] == 1
    assert "Read-only file system" in readonly[0]
    assert "Choose another run.dir" in readonly[0]
    assert "Traceback" not in readonly[0]
