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
    """(name, attributes, batch, rows of each process, and the batch that TRL is given where it is another).

    Unequal work, masked and dropped rows, other policies' log-probabilities; every loss.
    """
    batch = updating.make_batch(groups=6)
    halves = [list(range(12)), list(range(12, 24))]
    truncated = {**batch, "completion_mask": batch["completion_mask"].clone()}
    truncated["completion_mask"][[1, 3, 4, 5, 14]] = 0  # four rows of one process, one of the other
    truncated["num_items_in_batch"] = truncated["completion_mask"].sum()
    one_sided = {**batch, "advantages": batch["advantages"].clone()}
    one_sided["advantages"][:11] = 0  # the first process has one row to compute, the second all of its own
    names = ["old_per_token_logps", "ref_per_token_logps"]
    older = updating.with_logps(plain, batch, names)
    off = older["completion_mask"] * (older["old_per_token_logps"] - older["ref_per_token_logps"])
    corrected = {**older, "importance_sampling_ratio": off.exp().clamp(max=3.0)}
    engine = {"use_vllm": True, "vllm_importance_sampling_correction": True}
    kept = torch.ones(24, dtype=torch.bool)
    kept[4:12] = False  # two of the first process's three groups
    mask = older["completion_mask"] * kept[:, None]
    dropped = {**older, "completion_mask": mask, "num_items_in_batch": mask.sum(), "kept": kept}
    left = updating.rows_of({**older, "num_items_in_batch": mask.sum()}, kept.nonzero().squeeze(1))
    half = updating.rows_of(older, torch.arange(0, 24, 2))  # groups are torn apart by TRL's shuffle
    quarters = [list(range(6)), list(range(6, 12))]
    for loss_type in updating.LOSS_TYPES:
        of = {"loss_type": loss_type, "epsilon_low": 0.1, "epsilon_high": 0.1}
        yield f"{loss_type}", of, one_sided, halves
        yield f"{loss_type} truncated", of, truncated, halves
        yield f"{loss_type} kl", {**of, "beta": 0.1}, older, halves
        yield f"{loss_type} corrected", {**of, **engine}, corrected, halves
        yield f"{loss_type} dropped", of, dropped, halves, left
        yield (
            f"{loss_type} several",
            {**of, "steps_per_generation": 2, "microbatch_tokens": 60},
            half,
            quarters,
        )
        yield f"{loss_type} sequence", {**of, "importance_sampling_level": "sequence"}, older, halves
        entropy = {**of, "entropy_coef": 0.3, "_entropy_bonus_enabled": True}
        yield f"{loss_type} entropy", entropy, older, halves
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
        assert len(every) == 4
    torch.save([case[1:4] for case in every], tmp_path / "batches.pt")
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
    assert len(found) == len(every)
    for (name, attributes, batch, _, *theirs), (gradient, parts, logged) in zip(every, found, strict=True):
        plain._metrics["train"].clear()
        with updating.attributes(plain, attributes):
            difference = updating.difference(gradient, updating.trl_gradient(plain, *(theirs or [batch])))
        assert difference < 1e-5, f"{name}: {difference}"
        assert parts[0] == parts[1] > 1
        for metric, values in plain._metrics["train"].items():
            if metric.startswith("clip_ratio/") or metric in ("cispo_clip_ratio", "policy_loss", "kl"):
                assert logged[metric] == pytest.approx(values[-1], abs=1e-6, rel=1e-4), f"{name}: {metric}"
