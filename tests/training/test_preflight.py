"""The worst-case step before the first: it leaves no trace; what does not fit ends the run with the knob."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from launching import ROOT, environment, metrics
from tiny import save_tiny_model

from trlmath.errors import TrainingError
from trlmath.recipe import load_recipe, parse_recipe
from trlmath.training.grpo_run import GrpoRun
from trlmath.training.out_of_memory import explained, is_out_of_memory
from trlmath.training.preflight import bytes_of_state
from trlmath.training.sft_run import SftRun

QUIET = ["evaluation.enabled=false", "run.report=false", "run.report_to=none", "run.checkpoint_every=0"]
GRPO = ["rollout.prompts_per_step=4", "rollout.group_size=4", "sampling.max_tokens=16", "sampling.stop=[]"]
GRPO += ["sampling.engine=transformers", "trainer.max_steps=2", "data.unreadable_golds=1"]
ENFORCED = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"
LENGTHS = """def lengths(completions, **_):
    return [len(text) % 7 / 7 for text in completions]
"""


class Lines:
    """What a run says."""

    def __init__(self):
        self.lines = []

    def __getattr__(self, name):
        from trlmath.training.display import Silent

        return getattr(Silent(), name)

    def note(self, line):
        self.lines.append(line)


def trained(kind, folder, *overrides):
    """Train; returns (metrics without times and memory, digest of the weights, what was said)."""
    said = Lines()
    names = [*QUIET, f"run.dir={folder}", *(GRPO if kind is GrpoRun else ()), *overrides]
    recipe = load_recipe("nano/grpo" if kind is GrpoRun else "nano/sft", names)
    with kind(recipe, said) as run:
        run.train()
        weights = hashlib.sha256()
        for parameter in run.trainer.model.parameters():
            weights.update(parameter.detach().numpy().tobytes())
    kept = [
        {k: v for k, v in row.items() if not k.startswith(("time/", "memory/")) and "tok/s" not in k}
        for row in metrics(Path(folder))
    ]
    return kept, weights.hexdigest(), said.lines


@pytest.fixture
def restless(tmp_path):
    """A model with dropout, so that a random number too many shows, and a reward with spread."""
    (tmp_path / "lengths.py").write_text(LENGTHS)
    model = save_tiny_model(tmp_path / "model", context=512, attention_dropout=0.2)
    return [f"model.path={model}", f"rewards=[{tmp_path / 'lengths.py'}:lengths]"]


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("rollout.microbatch_tokens=400", "trainer.gradient_checkpointing=true"),
        ("model.lora={r: 4, target_modules: all-linear}", "trainer.beta=0.1"),
        ("rollout.epochs_per_rollout=2", "trainer.loss_type=dapo"),
    ],
    ids=["plain", "cut", "adapter", "off-policy"],
)
def test_grpo_is_the_same_with_and_without(tmp_path, restless, changes):
    tried = trained(GrpoRun, tmp_path / "with", *restless, *changes)
    plain = trained(GrpoRun, tmp_path / "without", *restless, *changes, "checks.preflight=false")
    assert tried[:2] == plain[:2]
    assert tried[0]
    assert any("a worst-case step fits: 16 completions of 16 tokens at once; " in line for line in tried[2])
    assert not any("worst-case" in line for line in plain[2])


def test_generation_that_does_not_fit_is_told_with_its_knobs(tmp_path, restless, monkeypatch):
    def full(*_):
        raise RuntimeError(ENFORCED)

    monkeypatch.setattr("trlmath.sampling.rehearsal.grow", full)
    with pytest.raises(TrainingError) as caught:
        trained(GrpoRun, tmp_path / "run", *restless)
    told = str(caught.value)
    assert (
        "worst-case generation before the first step (checks.preflight): 16 completions of 16 tokens" in told
    )
    assert "Lower sampling.engine_options.max_rows" in told
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("packing", ["false", "true"])
def test_sft_is_the_same_with_and_without(tmp_path, restless, packing):
    changes = [restless[0], "trainer.max_steps=2", "data.train_size=24", "batch.size=8"]
    changes += [f"batch.packing={packing}", "batch.microbatch_tokens=1500"]
    tried = trained(SftRun, tmp_path / "with", *changes)
    plain = trained(SftRun, tmp_path / "without", *changes, "checks.preflight=false")
    assert tried[:2] == plain[:2]
    assert any("a worst-case step fits" in line for line in tried[2])


@pytest.mark.slow
def test_too_large_a_budget_dies_before_the_first_step(tmp_path):
    where = tmp_path / "run"
    arguments = ["grpo", "600", str(where), "sampling.engine=transformers"]
    done = subprocess.run(
        [sys.executable, "tests/limited_memory.py", *arguments],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    told = done.stderr[done.stderr.index("error: ") :]
    assert "in the worst-case step before the first (checks.preflight)" in told
    assert "Nothing was trained. Lower rollout.microbatch_tokens (now 8192)" in told
    assert "tried to allocate" in told
    assert not (where / "metrics.jsonl").exists()
    assert '"status": "failed"' in (where / "manifest.json").read_text()


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError(f"{ENFORCED}: you tried to allocate 8 bytes."), True),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."), True),
        (RuntimeError("std::bad_alloc"), True),
        (RuntimeError("shapes do not fit"), False),
        (ValueError("out of memory"), False),
    ],
)  # fmt: skip
def test_what_counts_as_out_of_memory(error, is_one):
    assert is_out_of_memory(error) is is_one


def test_a_later_step_names_the_step_and_the_knob():
    recipe = parse_recipe({"rollout": {"microbatch_tokens": 512}, "model": {"dtype": "bfloat16"}})
    with pytest.raises(TrainingError) as caught, explained(recipe, "grpo", lambda: "after 139 steps"):
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:1] err == 0. DefaultCPUAllocator: can't allocate memory"
        )
    told = str(caught.value)
    assert told.startswith("out of memory after 139 steps: DefaultCPUAllocator: can't allocate memory. ")
    assert "Lower rollout.microbatch_tokens (now 512)" in told
    assert "bfloat16" not in told


def test_other_errors_pass():
    with pytest.raises(RuntimeError, match="shapes"), explained(parse_recipe({}), "sft", lambda: ""):
        raise RuntimeError("shapes do not fit")


@pytest.mark.parametrize(
    ("make", "bytes_"),
    [
        (lambda p: torch.optim.AdamW([p], lr=1e-3, fused=True), 8),
        (lambda p: torch.optim.SGD([p], lr=1e-3), 0),
        (lambda p: torch.optim.SGD([p], lr=1e-3, momentum=0.9), 4),
        (lambda p: torch.optim.RMSprop([p]), 4),
    ],
)
def test_the_state_of_an_optimizer_is_measured(make, bytes_):
    assert bytes_of_state(make(torch.nn.Parameter(torch.zeros(3)))) == bytes_
