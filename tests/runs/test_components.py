"""What ran is on record: distribution, version, file hash and options of each part; one-offs are copied."""

from __future__ import annotations

import hashlib
from pathlib import Path

from trlmath import __version__
from trlmath.recipe import load_recipe
from trlmath.runs.components import components_used, keep_one_offs
from trlmath.runs.directory import RunDirectory


def test_every_component_is_named_with_hash_and_options(checkout):
    recipe = load_recipe(
        "nano/grpo",
        [
            "rewards.1.name=length",
            "rewards.1.options={target: 5, max: 9}",
            "rewards.1.only_if=both",
            "filters.0=duplicate",
            "rewards.2.name=trl.rewards:think_format_reward",
            "rewards.2.as=chat",
        ],
    )
    used = components_used(recipe, "grpo")
    assert list(used) == ["rewards", "advantage", "filters", "prompt", "train", "eval"]
    length = used["rewards"][1]
    file = checkout / "trlmath" / "builtin" / "rewards.py"
    assert (length["distribution"], length["version"]) == ("trlmath", __version__)
    assert length["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert length["options"] == {"target": 5, "max": 9}
    assert length["only_if"] == "both"
    assert "weight" not in length, "defaults are in recipe.yaml"
    assert used["rewards"][2]["distribution"] == "trl"
    assert used["rewards"][2]["file"].endswith("format_rewards.py")
    assert used["advantage"]["options"] == {"std": True, "eps": 1e-6}
    assert (
        used["prompt"]["place"].endswith("register_prompts")
        or "builtin/__init__.py" in used["prompt"]["place"]
    )
    assert used["train"]["name"] == "nano"


def test_sft_has_no_advantage_and_a_file_is_no_component(tmp_path):
    recipe = load_recipe(
        "nano/grpo", [f"data.train={tmp_path}/rows.jsonl", "data.eval=null", "evaluation.enabled=false"]
    )
    used = components_used(recipe, "sft")
    assert set(used) == {"rewards", "filters", "prompt"}


def test_one_offs_are_copied_and_two_of_one_name_stay_apart(tmp_path):
    refs = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        file = tmp_path / folder / "mine.py"
        file.write_text(f"def score(completions):\n    return [{len(refs)}.0 for _ in completions]\n")
        refs.append(f"rewards.{len(refs)}.name={file}:score")
    used = components_used(load_recipe("nano/grpo", refs), "grpo")
    keep_one_offs(used, RunDirectory(tmp_path / "run"))
    copies = [entry["copy"] for entry in used["rewards"]]
    assert len(set(copies)) == 2
    for folder, copy in zip(("a", "b"), copies, strict=True):
        assert Path(copy).name.startswith("mine-")
        assert (tmp_path / "run" / copy).read_text() == (tmp_path / folder / "mine.py").read_text()
    assert "copy" not in used["advantage"]
