"""Two real processes (gloo) take the gradient that TRL takes on one from the uncut batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import updating
from transformers import AutoModelForCausalLM

TESTS = Path(__file__).resolve().parents[1]


def cases(plain):
    """(name, attributes, batch, rows of each process): unequal work, masked and dropped rows, every loss."""
    batch = updating.make_batch(groups=6)
    halves = [list(range(12)), list(range(12, 24))]
    truncated = {**batch, "completion_mask": batch["completion_mask"].clone()}
    truncated["completion_mask"][[1, 3, 4, 5, 14]] = 0  # four rows of one process, one of the other
    truncated["num_items_in_batch"] = truncated["completion_mask"].sum()
    one_sided = {**batch, "advantages": batch["advantages"].clone()}
    one_sided["advantages"][:11] = 0  # the first process has one row to compute, the second all of its own
    names = ["old_per_token_logps", "ref_per_token_logps"]
    older = updating.with_logps(plain, batch, names)
    for loss_type in updating.LOSS_TYPES:
        yield f"{loss_type}", {"loss_type": loss_type}, one_sided, halves
        yield f"{loss_type} truncated", {"loss_type": loss_type}, truncated, halves
        if loss_type in ("grpo", "dapo", "bnpo"):  # one of each way of averaging
            yield f"{loss_type} kl", {"loss_type": loss_type, "beta": 0.1}, older, halves
    entropy = {"entropy_coef": 0.3, "_entropy_bonus_enabled": True}
    yield "entropy", entropy, batch, halves
    yield "quantile", {"top_entropy_quantile": 0.3}, batch, halves


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ddp", "fsdp2"])
def test_two_processes_take_trls_gradient_of_one(tiny_dir, tmp_path, how):
    model = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32")
    model.get_input_embeddings().weight.data.mul_(0.2)
    plain = updating.plain_trl(
        model, output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to=[], max_completion_length=24
    )
    every = list(cases(plain))
    if how == "fsdp2":  # the arithmetic is the same: one case of each way of averaging
        every = [case for case in every if case[0] in ("grpo truncated", "bnpo", "dapo kl", "quantile")]
    torch.save([case[1:] for case in every], tmp_path / "batches.pt")
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    files = [str(tiny_dir), str(tmp_path / "batches.pt"), str(tmp_path / "out.pt"), how]
    done = subprocess.run(
        [sys.executable, *launcher, str(TESTS / "two_processes.py"), *files],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(tmp_path / "out.pt")
    for (name, attributes, batch, _), (gradient, parts) in zip(every, found, strict=True):
        before = dict(vars(plain))
        vars(plain).update(attributes)
        difference = updating.difference(gradient, updating.trl_gradient(plain, batch))
        vars(plain).clear()
        vars(plain).update(before)
        assert difference < 1e-5, f"{name}: {difference}"
        assert parts[0] == parts[1] > 1
    assert len(found) == len(every) == (2 * len(updating.LOSS_TYPES) + 5 if how == "ddp" else 4)
