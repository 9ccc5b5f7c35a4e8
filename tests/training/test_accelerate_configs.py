"""recipes/accelerate: every file is one that accelerate reads; DDP trains with it, FSDP2 starts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType
from launching import ROOT, environment, metrics

from trlmath.recipe.shipped import LAUNCHERS, shipped_recipes

FOLDER = ROOT / "recipes" / LAUNCHERS
EXPECTED = {
    "ddp": DistributedType.MULTI_GPU,
    "fsdp2": DistributedType.FSDP,
    "zero2": DistributedType.DEEPSPEED,
    "zero3": DistributedType.DEEPSPEED,
    "multi_node": DistributedType.MULTI_GPU,
    "multi_node_fsdp2": DistributedType.FSDP,
    "multi_node_zero2": DistributedType.DEEPSPEED,
}


def test_all_are_looked_at():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(EXPECTED)
    assert not [name for name in shipped_recipes() if name.startswith(LAUNCHERS)]


@pytest.mark.parametrize("name", EXPECTED)
def test_accelerate_reads_it(name):
    config = load_config_from_file(str(FOLDER / f"{name}.yaml"))
    assert config.distributed_type == EXPECTED[name]
    several = name.startswith("multi_node")
    assert (config.num_machines, config.num_processes) == ((2, 16) if several else (1, 2))
    if "fsdp2" in name:
        assert config.fsdp_config["fsdp_version"] == 2
    if several:  # one that all machines know, and each process started by its own machine's launcher
        assert config.main_process_port == 29500
        assert config.rdzv_backend == "static"
    if "zero" in name:
        assert config.deepspeed_config["deepspeed_multinode_launcher"] == "standard"
        assert config.deepspeed_config["zero_stage"] == int(name[-1])
        assert config.deepspeed_config["gradient_accumulation_steps"] == 1


@pytest.mark.slow
def test_ddp_trains_two_processes_and_fsdp2_starts(tmp_path):
    directory = tmp_path / "run"
    overrides = ["trainer.max_steps=2", "rollout.prompts_per_step=4", "rollout.group_size=4"]
    overrides += [
        "rollout.microbatch_tokens=512",
        "rollout.updates_per_rollout=2",
        "evaluation.enabled=false",
    ]
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--config_file"]
    both = [  # at once, and each on a port of its own
        subprocess.Popen(
            [*launcher, str(FOLDER / file), "recipes/grpo.py", *overrides, *more],
            cwd=ROOT,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        # sharding itself takes a GPU; DeepSpeed, for zero2 and zero3, is not there
        for file, more in (("ddp.yaml", [f"run.dir={directory}"]), ("fsdp2.yaml", ["--dry-run"]))
    ]
    for process in both:
        output, _ = process.communicate(timeout=280)
        assert process.returncode == 0, output[-3000:]
    assert "prompts_per_step: 4" in output, "the recipe as it would run"
    training = [row for row in metrics(directory) if "train/loss" in row]
    assert [row["step"] for row in training] == [1, 2]
    assert training[0]["time/old_logprobs"] > 0
