"""The built-in rewards, and TRL's own by their names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trlmath.components import resolve
from trlmath.errors import RecipeError

RIGHT = "1+1 is 2 </think> <answer> 2 </answer>"
WRONG = "1+1 is 3 </think> <answer> 3 </answer>"
NO_FORMAT = r"1+1 is \boxed{2}"
NOTHING = "I do not know"
ALL = [RIGHT, WRONG, NO_FORMAT, NOTHING]
GOLD = ["2"] * 4


def rewards(name, options=None, **given):
    return [g.reward for g in resolve("reward", name).build(options or {})(**given)]


def test_r1_zero_needs_format_and_answer():
    reward = resolve("reward", "r1_zero").build()
    grades = reward(completions=ALL, answer=GOLD)
    assert [g.reward for g in grades] == [1.0, 0.0, 0.0, 0.0]
    assert [g.parts["format"] for g in grades] == [1.0, 1.0, 0.0, 0.0]
    assert [g.parts["answer"] for g in grades] == [1.0, 0.0, 1.0, 0.0]
    assert [g.parts["both"] for g in grades] == [g.reward for g in grades]


def test_r1_zero_reference_counts_what_the_reference_counts():
    no_space = "2 </think><answer>2</answer>"
    assert rewards("r1_zero", completions=[no_space], answer=["2"]) == [1.0]
    assert rewards("r1_zero", {"mode": "reference"}, completions=[no_space], answer=["2"]) == [0.0]
    with pytest.raises(RecipeError, match="'strict' or 'reference'"):
        resolve("reward", "r1_zero").build({"mode": "loose"})


def test_unreadable_gold_cannot_be_scored():
    assert rewards("r1_zero", completions=[RIGHT, RIGHT], answer=[None, "2"]) == [None, 1.0]


def test_accuracy_is_blind_to_format_and_format_to_the_answer():
    assert rewards("accuracy", completions=ALL, answer=GOLD) == [1.0, 0.0, 1.0, 0.0]
    assert rewards("format", completions=ALL, answer=GOLD) == [1.0, 1.0, 0.0, 0.0]
    assert rewards("format", completions=ALL) == [1.0, 1.0, 0.0, 0.0]
    with pytest.raises(RecipeError, match="use strict"):
        resolve("reward", "format").build({"style": "boxed", "mode": "reference"})


def test_boxed():
    texts = [NO_FORMAT, r"\boxed{3}", r"<think> \boxed{2}", "2"]
    assert rewards("boxed", completions=texts, answer=GOLD) == [1.0, 0.0, 0.0, 0.0]


def test_length_falls_from_target_to_max():
    length = resolve("reward", "length").build({"target": 10, "max": 20})
    assert length(completion_ids=[[0] * n for n in (0, 10, 15, 20, 99)]) == [0.0, 0.0, -0.5, -1.0, -1.0]
    with pytest.raises(RecipeError, match="target 20, max 20"):
        resolve("reward", "length").build({"target": 20, "max": 20})


def test_every_reward_function_of_trl_is_there():
    import trl.rewards

    public = {name for name in dir(trl.rewards) if name.endswith("_reward") or name.startswith("get_")}
    public |= {"think_format_reward", "accuracy_reward", "get_soft_overlong_punishment"}
    for name in public:
        resolve("reward", name)


def test_factories_of_trl_take_options():
    soft = resolve("reward", "get_soft_overlong_punishment").build(
        {"max_completion_len": 20, "soft_punish_cache": 10}
    )
    assert soft(completion_ids=[[0] * 15]) == [-0.5]
    repetition = resolve("reward", "get_repetition_penalty_reward").build({"ngram_size": 2})
    assert repetition(completion_ids=[[5, 5, 5, 5, 5]]) == [-0.75]
    cosine = resolve("reward", "get_cosine_scaled_reward")
    assert cosine.completions == "chat"
    assert cosine.build({"max_len": 100}) is not None


def test_factories_have_the_options_of_trl():
    import inspect

    import trl.rewards

    for name in ("get_soft_overlong_punishment", "get_repetition_penalty_reward", "get_cosine_scaled_reward"):
        theirs = inspect.signature(getattr(trl.rewards, name)).parameters
        ours = inspect.signature(resolve("reward", name).target).parameters
        assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_resolving_rewards_of_trl_imports_no_trl():
    code = (
        "import sys; from trlmath.components import resolve; resolve('reward', 'accuracy_reward');"
        "print('trl' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
    )
