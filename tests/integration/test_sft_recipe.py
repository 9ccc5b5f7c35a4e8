"""`accelerate launch recipes/sft.py` and its runs in this process: evaluation, early stopping, averaging."""

from __future__ import annotations

import json
import re

import pytest
import torch
from launching import launch, metrics

from trlmath.errors import DataError, RecipeError, TrlmathError
from trlmath.recipe import load_recipe
from trlmath.training import run_base
from trlmath.training.sft_run import SftRun

SMALL = ["data.train_size=48", "batch.size=16", "batch.microbatch_tokens=1024", "evaluation.limit=8"]
GREEDY = "evaluation.settings=[{name: greedy, temperature: 0.0}]"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Do what recipes/sft.py does, in this process; returns the run and its rows of metrics."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))

    def of(*overrides, name="nano/sft"):
        where = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        recipe = load_recipe(name, [*SMALL, GREEDY, f"run.dir={where}", *overrides])
        with SftRun(recipe) as sft:
            before = sft.evaluate("before")
            sft.train()
            sft.finish(before, sft.evaluate("after"))
        return sft, metrics(where)

    return of


def test_evaluation_while_training_stops_early_and_the_average_is_saved(run):
    """Nothing can improve by 2, so the second evaluation is the last."""
    sft, rows = run(
        "trainer.num_train_epochs=8",
        "evaluation.every=2",
        "early_stop={metric: eval_greedy/both, patience: 2, min_delta: 2}",
        "averaging={kind: ema, decay: 0.5}",
    )
    steps = [row["step"] for row in rows if "train/loss" in row]
    assert steps == [1, 2, 3, 4]
    assert [row["step"] for row in rows if "eval_greedy/both" in row] == [0, 2, 4, 4]
    from safetensors.torch import load_file

    saved = load_file(sft.directory / "checkpoints" / "final" / "model.safetensors")
    names = [n for n, p in sft.trainer.model.named_parameters() if p.requires_grad]
    for name, average in zip(names, sft.average._values(), strict=True):
        if name in saved:
            torch.testing.assert_close(saved[name], average, atol=1e-6, rtol=1e-6)


def test_filtered_traces_are_dropped_with_their_reason(run):
    sft, rows = run("evaluation.enabled=false", "trainer.max_steps=1", name="nano/sft-filtered")
    dropped = [json.loads(line) for line in (sft.directory / "filters.jsonl").read_text().splitlines()]
    assert all(entry["filter"] == "correct_answer" for entry in dropped)
    assert 0.35 * 4096 < len(dropped) < 0.45 * 4096
    manifest = json.loads((sft.directory / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    assert manifest["rows"]["train"] == manifest["examples"] == 48
    assert rows[0]["train/supervised_tokens"] < manifest["tokens"]["supervised"] < manifest["tokens"]["all"]


def test_packing_trains_as_padding_does(run):
    small = ["evaluation.enabled=false", "trainer.max_steps=3"]
    _, padded = run(*small)
    _, packed = run(*small, "batch.packing=true")
    assert [r["train/loss"] for r in packed] == pytest.approx([r["train/loss"] for r in padded], rel=1e-4)


def test_lora_saves_an_adapter(run):
    sft, rows = run(
        "evaluation.enabled=false", "trainer.max_steps=2", "model.lora={r: 4, target_modules: [q_proj]}"
    )
    final = sft.directory / "checkpoints" / "final"
    assert (final / "adapter_model.safetensors").exists()
    assert len(rows) == 2


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """Construct a run that must fail before weights are loaded, and hand back the error's words."""

    def refuse(*args):
        raise AssertionError("a weight was loaded")

    def of(*overrides, error=TrlmathError):
        monkeypatch.setattr(run_base, "load_policy", refuse)
        with pytest.raises(error) as caught:
            SftRun(load_recipe("nano/sft", [*SMALL, f"run.dir={tmp_path / 'run'}", *overrides]))
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    return of


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("early_stop={}", ["early_stop", "evaluation.every"]),
        ("trainer.max_length=512", ["trainer.max_length", "batch.max_length"]),
        ("trainer.packing=true", ["trainer.packing", "batch.packing"]),
        ("trainer.per_device_train_batch_size=4", ["batch.size"]),
        ("trainer.loss_type=grpo", ["trainer.loss_type", "nll, dft"]),
        ("trainer.epsilon=0.2", ["trainer.epsilon", "SFTConfig"]),
        ("trainer.learning_rate=-1", ["trainer.learning_rate", "at least 0"]),
        ("batch.max_length=100000", ["batch.max_length", "context"]),
        ("data.train_size=5000", ["data.train_size", "5000"]),
        ("averaging={kind: ema, decay: 1}", ["averaging.decay", "less than 1"]),
        ("averaging={kind: mean}", ["averaging.kind", "ema"]),
        ("model.lora={rank: 8}", ["model.lora.rank"]),
        ("filters=[zero_spread]", ["zero_spread"]),
    ],
)
def test_a_mistake_is_told_before_a_weight_is_loaded(refused, override, wanted):
    message = refused(override)
    for piece in wanted:
        assert piece in message, message


def test_traces_that_no_filter_keeps_are_an_error(refused):
    message = refused("filters=[{name: trace_length, options: {max: 1}}]", error=DataError)
    assert "trace_length" in message


def test_more_processes_than_rows_of_a_step(tmp_path):
    from trlmath.training.sft_config import sft_config

    with pytest.raises(RecipeError, match="batch.size: got 2; allowed: at least the 3 processes"):
        sft_config(load_recipe("nano/sft", ["batch.size=2"]), tmp_path, processes=3)


def test_flash_attention_without_it_is_told(run):
    with pytest.raises(RecipeError, match="model.attention=flash_attention_2.*sdpa works everywhere"):
        run("model.attention=flash_attention_2", "batch.packing=true")


def test_workers_and_pinned_memory_are_for_a_gpu(tmp_path, monkeypatch):
    from trlmath.training import sft_config

    recipe = load_recipe("nano/sft")
    here = sft_config.sft_config(recipe, tmp_path, processes=1)
    assert (here.dataloader_num_workers, here.dataloader_pin_memory) == (0, False)
    taken = {}
    monkeypatch.setattr(sft_config.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(sft_config, "SFTConfig", lambda **given: taken.update(given))
    sft_config.sft_config(load_recipe("nano/sft", ["model.dtype=bfloat16"]), tmp_path, processes=1)
    assert taken["dataloader_num_workers"] == 2
    assert taken["dataloader_persistent_workers"]
    assert taken["dataloader_pin_memory"]
    assert taken["bf16"]
    assert not taken["use_cpu"]


@pytest.mark.slow
def test_the_default_recipe_leaves_a_whole_run(tmp_path):
    directory = tmp_path / "run"
    done = launch(*SMALL, f"run.dir={directory}", script="sft")
    assert done.returncode == 0, done.stderr
    assert re.search(r"row \d+: \d+ tokens, \d+ trained", done.stdout)
    assert "tokens are trained" in done.stdout
    assert "held-out problems" in done.stdout
    rows = metrics(directory)
    training = [row for row in rows if "train/loss" in row]
    assert [row["step"] for row in training] == [1, 2, 3]
    for key in ("grad_norm", "tokens", "supervised_tokens", "entropy", "learning_rate"):
        assert f"train/{key}" in training[0], sorted(training[0])
    for phase in ("data", "update", "optimizer", "step", "data_share"):
        assert training[0][f"time/{phase}"] >= 0
    assert [row["step"] for row in rows if "eval/both" in row] == [0, 3]
    from trlmath.runs.metrics_table import find

    strange = {name for row in rows for name in row if name != "step" and find(name) is None}
    assert not strange, f"give them a row in trlmath/runs/metrics_table.py: {sorted(strange)}"
    again = launch("--config", str(directory / "recipe.yaml"), "--dry-run", "run.dir=null", script="sft")
    assert again.returncode == 0, again.stderr


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    losses = []
    for processes in (1, 2):
        directory = tmp_path / f"run{processes}"
        quiet = ["evaluation.enabled=false", "data.train_size=50", f"run.dir={directory}"]
        done = launch(*SMALL, *quiet, processes=processes, script="sft")
        assert done.returncode == 0, done.stderr
        losses.append([row["train/loss"] for row in metrics(directory)])
    assert len(losses[0]) == 4  # the last step has two rows
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.slow
@pytest.mark.vllm
def test_vllm_evaluates_the_new_weights(tmp_path):
    directory = tmp_path / "run"
    done = launch(*SMALL, f"run.dir={directory}", "sampling.engine=vllm", "evaluation.every=2", script="sft")
    assert done.returncode == 0, done.stderr
    fresh = [
        (row["step"], row["engine/freshness"]) for row in metrics(directory) if "engine/freshness" in row
    ]
    assert [step for step, _ in fresh] == [0, 2, 3]
    assert all(difference < 1e-3 for _, difference in fresh)
