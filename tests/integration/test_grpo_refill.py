"""Dynamic sampling as a user runs it, on one and two processes: the same rounds, useful groups only."""

from __future__ import annotations

import pyarrow.parquet
import pytest
from launching import launch, metrics


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_dropped_groups_are_refilled(tmp_path, processes):
    directory = tmp_path / "run"
    done = launch(
        "trainer.max_steps=2",
        "rollout.prompts_per_step=4",
        "rollout.group_size=4",
        "rollout.microbatch_tokens=512",
        "rollout.updates_per_rollout=2",
        "rollout.old_logprobs=engine",
        "filters=[zero_spread]",
        "rollout.refill.max_rounds=4",
        "evaluation.enabled=false",
        f"run.dir={directory}",
        processes=processes,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    training = [row for row in metrics(directory) if "train/loss" in row]
    assert [row["step"] for row in training] == [1, 2]
    first = training[0]
    assert "time/old_logprobs" not in first
    rollouts = pyarrow.parquet.read_table(directory / "rollouts" / "step-000000.parquet").to_pylist()
    assert len(rollouts) == 4 * (4 + first["train/refill/groups"]) == first["train/rollouts"]
    spread = {}
    for row in rollouts:
        spread.setdefault(row["question"], set()).add(row["reward"])
    useful = sum(len(rewards) > 1 for rewards in spread.values())
    assert useful == round((1 - first["train/groups_dropped"]) * (4 + first["train/refill/groups"]))
    assert useful >= 4 or first["train/refill/rounds"] == 4
    assert first["train/refill/unused"] == max(0, useful - 4)
