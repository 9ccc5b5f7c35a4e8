"""The shipped recipes load, name parts that exist, and leave no number of the source to a default."""

from __future__ import annotations

import pytest

from trlmath.errors import RecipeError
from trlmath.recipe import (
    check_components,
    check_sections,
    check_trainer,
    load_recipe,
    shipped_recipes,
    shipped_studies,
)
from trlmath.recipe.shipped import recipes_folder

EXPECTED = {
    "nano/evaluate",
    "qwen2.5-math-1.5b/evaluate",
    "smollm2-135m/evaluate",
    "nano/expert_iteration",
    "qwen2.5-math-1.5b/expert_iteration",
    "nano/grpo",
    "qwen2.5-math-1.5b/grpo",
    "qwen2.5-math-1.5b/grpo-24gb",
    "qwen2.5-math-1.5b/grpo-best",
    "smollm2-135m/grpo",
    "nano/sft",
    "nano/sft-filtered",
    "qwen2.5-math-1.5b/sft",
    "qwen2.5-math-1.5b/sft-filtered",
    "smollm2-135m/sft",
}


def test_the_promised_recipes_are_there():
    assert set(shipped_recipes()) >= EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_shipped_recipe_is_valid(name):
    recipe = load_recipe(name)
    check_components(recipe)
    algorithm = name.split("/")[1].split("-")[0]
    algorithm = algorithm if algorithm in ("sft", "expert_iteration") else "grpo"
    check_trainer(recipe, algorithm)
    check_sections(recipe, algorithm)


def test_the_cs336_recipe_writes_every_number_out():
    """The numbers of the assignment's GRPO section, in the file itself and not through a default."""
    from trlmath.recipe.yamls import read

    raw = read(shipped_recipes()["qwen2.5-math-1.5b/grpo"])
    assert raw["model"] == {
        "path": "Qwen/Qwen2.5-Math-1.5B",
        "dtype": "bfloat16",
        "attention": "flash_attention_2",
    }
    sampling = raw["sampling"]
    assert (sampling["temperature"], sampling["min_tokens"], sampling["max_tokens"]) == (1.0, 4, 1024)
    assert (sampling["stop"], sampling["engine"], sampling["mode"]) == (["</answer>"], "vllm", "colocate")
    assert (sampling["top_p"], sampling["top_k"], sampling["min_p"]) == (1.0, None, None)
    rollout = raw["rollout"]
    assert (rollout["prompts_per_step"], rollout["group_size"]) == (32, 8)
    assert (rollout["updates_per_rollout"], rollout["epochs_per_rollout"]) == (1, 1)
    assert raw["advantage"] == {"name": "group", "options": {"std": True, "eps": 1e-6}}
    expected = {
        "max_steps": 200,
        "learning_rate": 1e-5,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.95,
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "loss_type": "grpo",
        "beta": 0.0,
        "epsilon": 0.2,
        "epsilon_high": 0.2,
        "bf16": True,
        "gradient_checkpointing": True,
    }
    assert {key: raw["trainer"][key] for key in expected} == expected


def differences(one, two, prefix=""):
    """Dotted keys at which two nested dicts differ."""
    if isinstance(one, dict) and isinstance(two, dict):
        keys = sorted(set(one) | set(two))
        return [d for k in keys for d in differences(one.get(k), two.get(k), f"{prefix}{k}.")]
    return [] if one == two else [prefix.rstrip(".")]


def test_the_variants_differ_from_it_only_where_they_say():
    base = load_recipe("qwen2.5-math-1.5b/grpo").to_dict()
    best = load_recipe("qwen2.5-math-1.5b/grpo-best").to_dict()
    small = load_recipe("qwen2.5-math-1.5b/grpo-24gb").to_dict()
    assert differences(base, best) == ["trainer.learning_rate"]
    assert best["trainer"]["learning_rate"] == 3e-5
    assert differences(base, small) == [
        "rollout.microbatch_tokens",
        "sampling.engine_options.gpu_memory_utilization",
        "sampling.sleep",
        "trainer.optim",
    ]
    assert small["sampling"]["sleep"] is True
    assert "8bit" in small["trainer"]["optim"]


def test_filtered_sft_differs_from_sft_by_its_filter():
    for folder, more in (("nano", ["data.train.options.wrong_traces"]), ("qwen2.5-math-1.5b", [])):
        plain, filtered = (load_recipe(f"{folder}/{name}").to_dict() for name in ("sft", "sft-filtered"))
        assert differences(plain, filtered) == [*more, "filters"]
        assert [f["name"] for f in filtered["filters"]] == ["correct_answer"]


def test_the_cs336_sft_recipe_writes_its_numbers_out():
    from trlmath.recipe.yamls import read

    raw = read(shipped_recipes()["qwen2.5-math-1.5b/sft"])
    assert (raw["model"]["dtype"], raw["model"]["attention"]) == ("bfloat16", "flash_attention_2")
    expected = {"num_train_epochs": 1, "warmup_steps": 0.1, "max_grad_norm": 1.0, "bf16": True}
    assert {key: raw["trainer"][key] for key in expected} == expected
    assert raw["data"]["train"] == "garg-aayush/sft-cs336-assign5-datasets"
    assert raw["sampling"]["stop"] == ["</answer>"]


def test_the_scripts_are_short():
    for script in recipes_folder().glob("*.py"):
        assert len(script.read_text(encoding="utf-8").splitlines()) < 40, script


def test_a_study_is_no_recipe(tmp_path):
    assert not set(shipped_recipes()) & set(shipped_studies())
    file = tmp_path / "study.yaml"
    file.write_text("runs:\n  - {name: a, algorithm: grpo, recipe: nano/grpo}\n")
    with pytest.raises(RecipeError, match="`trlmath study "):
        load_recipe(file)


def test_the_expert_iteration_recipe_writes_the_sources_numbers_out():
    from trlmath.recipe.yamls import read

    raw = read(shipped_recipes()["qwen2.5-math-1.5b/expert_iteration"])
    section = raw["expert_iteration"]
    assert (section["iterations"], section["problems_per_iteration"]) == (5, 512)
    assert (raw["sampling"]["min_tokens"], raw["sampling"]["stop"]) == (4, ["</answer>"])
    assert raw["sampling"]["sleep"] is True
    assert raw["rollout"]["group_size"] == 4
    assert raw["trainer"]["max_grad_norm"] == 1.0
    names = [entry if isinstance(entry, str) else entry["name"] for entry in raw["filters"]]
    assert names[3:] == ["correct_answer", "rising_threshold", "near_duplicate", "per_problem", "elite"]
