"""What an engine cannot do is told before a weight is loaded, a run directory made or an engine started."""

from __future__ import annotations

import importlib.util

import pytest

from trlmath.errors import RecipeError
from trlmath.recipe import load_recipe
from trlmath.training import run_base
from trlmath.training.grpo_run import GrpoRun
from trlmath.training.sft_run import SftRun

NEEDS_VLLM = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here"),
]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["sampling.engine=transformers", "sampling.engine_options={max_row: 8}"], "Did you mean 'max_rows'"),
        (
            ["sampling.engine=transformers", "sampling.sleep=true"],
            "sampling.sleep: frees the memory of a vLLM",
        ),
        # auto takes transformers for a model of this size on a CPU
        (
            ["sampling.engine=auto", "sampling.engine_options={enforce_eager: true}"],
            "transformers has no such",
        ),
        pytest.param(
            ["sampling.engine=vllm", "sampling.sleep=true"],
            "sleep mode exists on GPUs only",
            marks=NEEDS_VLLM,
        ),
        pytest.param(
            ["sampling.engine=vllm", "sampling.engine_options={gpu_memory_utilisation: 0.3}"],
            "gpu_memory_utilisation: vllm has no such option. Did you mean 'gpu_memory_utilization'",
            marks=NEEDS_VLLM,
        ),
        pytest.param(
            ["sampling.mode=server", "sampling.engine_options={data_parallel: 2}"],
            "data_parallel: the server that a run starts has no such option. Did you mean 'data_parallel_",
            marks=NEEDS_VLLM,
        ),
    ],
)
def test_told_before_weights_are_loaded(monkeypatch, tmp_path, overrides, told):
    refuses(monkeypatch, tmp_path, GrpoRun, "nano/grpo", overrides, told)


def test_sft_asks_for_the_engine_of_its_evaluations(monkeypatch, tmp_path):
    bad = ["sampling.engine=transformers", "sampling.engine_options={max_row: 8}"]
    refuses(monkeypatch, tmp_path, SftRun, "nano/sft", bad, "Did you mean 'max_rows'")


def refuses(monkeypatch, tmp_path, run, name, overrides, told):
    monkeypatch.setattr(run_base, "load_policy", lambda *a: pytest.fail("weights were loaded"))
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    recipe = load_recipe(name, [f"run.dir={tmp_path / 'run'}", *overrides])
    with pytest.raises(RecipeError, match=told):
        run(recipe)
    assert not (tmp_path / "run").exists()
