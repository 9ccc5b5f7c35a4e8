"""Several rewards as one: scale, clip, gate, schedule; in evaluation and in the trainer's matrix alike."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from trlmath import Grade, Group, Problem, RecipeError, Rollout
from trlmath.composition import Rule, compose, weights
from trlmath.evaluation.gates import check_gates
from trlmath.evaluation.merge import merge_grades
from trlmath.evaluation.run import EvaluationSet, grade_groups
from trlmath.recipe import RewardEntry, load_recipe
from trlmath.recipe.schema import ChecksSection
from trlmath.rewards import build_rewards
from trlmath.training.composed import composed_matrix


def fake(name, **rule):
    return SimpleNamespace(name=name, rule=Rule(**rule))


def values(rewards, *columns, parts=None):
    grades = [[Grade(v, (parts or {}) if n == 0 else {}) for v in c] for n, c in enumerate(columns)]
    return [[g.reward for g in column] for column in compose(rewards, grades)]


def test_scale_comes_before_clip():
    assert values([fake("a", scale=0.01, clip=(0.1, 1.0))], [50.0, 300.0, -5.0]) == [[0.5, 1.0, 0.1]]


def test_a_gate_is_another_reward_or_a_part():
    rewards = [fake("ok"), fake("bonus", only_if="ok")]
    assert values(rewards, [1.0, 0.0, None, -1.0], [5.0, 5.0, 5.0, 5.0])[1] == [5.0, 0.0, None, 0.0]
    by_part = [fake("r1"), fake("bonus", only_if="format")]
    assert values(by_part, [0.0], [5.0], parts={"format": 1.0})[1] == [5.0]
    assert values(by_part, [1.0], [5.0], parts={"format": 0.0})[1] == [0.0]
    assert values(by_part, [1.0], [5.0], parts={"format": None})[1] == [None]


def test_a_gate_sees_the_value_before_that_reward_is_composed():
    rewards = [fake("a", scale=-1.0), fake("b", only_if="a")]
    assert values(rewards, [1.0], [2.0]) == [[-1.0], [2.0]]


def test_what_cannot_be_scored_stays_so():
    assert values([fake("a", scale=2.0, clip=(0, 1))], [None, 1.0]) == [[None, 1.0]]


def test_an_unknown_gate_names_what_there_is():
    rewards = [fake("r1"), fake("bonus", only_if="fromat")]
    with pytest.raises(RecipeError, match=r"rewards.1.only_if.*'fromat'. Did you mean 'format'.*r1, format"):
        values(rewards, [1.0], [5.0], parts={"format": 1.0})


def test_a_schedule_is_linear_in_between_and_constant_outside():
    rule = Rule(schedule={10: 0.0, 20: 1.0, 40: 0.5})
    assert [rule.factor(s) for s in (0, 10, 15, 20, 30, 40, 99, None)] == [0, 0, 0.5, 1, 0.75, 0.5, 0.5, 0.5]
    assert weights([fake("a"), fake("b", schedule={0: 1.0, 4: 0.0})], [2.0, 3.0], 1) == [2.0, 2.25]
    assert weights([object()], [2.0], None) == [2.0]


def test_the_keys_of_an_entry_are_checked_and_survive_the_run_directory(tmp_path):
    overrides = [
        "rewards.1.name=format",
        "rewards.1.scale=2",
        "rewards.1.clip=[0, 1]",
        "rewards.1.schedule={0: 1, 20: 0}",
        "rewards.1.only_if=answer",
    ]
    recipe = load_recipe("nano/grpo", overrides)
    (tmp_path / "again.yaml").write_text(recipe.to_yaml())
    again = load_recipe(str(tmp_path / "again.yaml"), [])
    assert again.rewards == recipe.rewards
    rule = build_rewards(again.rewards)[1].rule
    assert rule == Rule(2.0, (0.0, 1.0), {0: 1.0, 20: 0.0}, "answer")
    for wrong in ("clip=[1, 0]", "clip=[0]", "schedule={-1: 1}", "schedule={a: 1}", "scale=true"):
        with pytest.raises(RecipeError, match=r"rewards\.0"):
            load_recipe("nano/grpo", [f"rewards.0.{wrong}"])


def test_an_evaluation_composes_and_weighs_as_the_end_of_the_schedule(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def size(completions):\n    return [float(len(c)) for c in completions]\n"
    )
    rewards = build_rewards(
        [
            RewardEntry(name="r1_zero"),
            RewardEntry(name="format", weight=8, schedule={0: 1, 9: 0.5}),
            RewardEntry(name=f"{tmp_path}/mine.py:size", only_if="both", clip=(0, 10)),
        ]
    )
    data = EvaluationSet([Problem("1+1?", "2")], ["p"], [[1]], rewards, [r.weight for r in rewards])
    texts = ("so </think> <answer>2</answer>", "so </think> <answer>3</answer>", "2")
    group = Group("p", (1,), tuple(Rollout(t, (1,)) for t in texts))
    (graded,) = grade_groups(data, [0], [group])
    assert [r.grade.reward for r in graded.rollouts] == [1 + 4 + 10, 4, 0]
    assert graded.rollouts[0].grade.parts["format/format"] == 1.0, "the second reward's part, by its name"


def test_parts_of_one_name_are_told_apart():
    first, second = Grade(1.0, {"format": 1.0}), Grade(0.0, {"format": 0.0, "steps": 0.5})
    merged = merge_grades([first, second], [1, 1], ["a", "b"])
    assert merged.parts == {"format": 1.0, "b/format": 0.0, "steps": 0.5}


def test_the_trainers_matrix_is_composed_and_gathered():
    grades = [[Grade(1.0), Grade(0.0), Grade(None)], [Grade(3.0), Grade(3.0), Grade(3.0)]]
    calls = [
        SimpleNamespace(reward=fake("ok"), grades=grades[0]),
        SimpleNamespace(reward=fake("b", only_if="ok", scale=2.0), grades=grades[1]),
    ]
    twice = SimpleNamespace(gather=lambda t: torch.cat([t, t]))
    matrix = composed_matrix(torch.zeros(6, 2), calls, twice)
    assert matrix[:2].tolist() == [[1.0, 6.0], [0.0, 0.0]]
    assert math.isnan(matrix[2, 0])
    assert math.isnan(matrix[2, 1])
    assert torch.equal(matrix[3:].nan_to_num(9.0), matrix[:3].nan_to_num(9.0))
    assert [g.reward for g in calls[1].grades] == [6.0, 0.0, None], "the run's files show what was trained on"


def test_a_rollout_that_one_reward_failed_on_is_scored_by_none(tmp_path):
    lost, fine = Grade(None, category="reward_error", reason="it raised"), Grade(1.0)
    columns = [[Grade(1.0, {"both": 1.0}, "both"), fine, fine], [lost, fine, Grade(None)]]
    rewards = [fake("r1"), fake("bonus")]
    assert [[g.reward for g in column] for column in compose(rewards, columns)] == [
        [None, 1.0, 1.0],
        [None, 1.0, None],
    ]
    merged = merge_grades([column[0] for column in compose(rewards, columns)], [1, 1])
    assert (merged.reward, merged.category, merged.reason) == (None, "reward_error", "it raised")
    assert merged.parts == {"both": 1.0}
    (tmp_path / "mine.py").write_text("def mine(completions):\n    return [1.0 for _ in completions]\n")
    (mine,) = build_rewards(
        [RewardEntry(name=f"{tmp_path}/mine.py:mine")], ChecksSection(on_reward_error="unscorable")
    )
    calls = [SimpleNamespace(reward=mine, grades=grades) for grades in columns]
    matrix = composed_matrix(torch.ones(3, 2), calls, SimpleNamespace(gather=lambda t: t))
    assert matrix.isnan().tolist() == [[True, True], [False, False], [False, True]]


def test_a_gate_that_names_nothing_is_found_before_a_weight_is_loaded():
    problems = [Problem("1+1?", "2")]
    entries = [RewardEntry(name="r1_zero"), RewardEntry(name="format", only_if="bouth")]
    with pytest.raises(RecipeError, match=r"rewards\.1\.only_if.*Did you mean 'both'"):
        check_gates(build_rewards(entries), problems)
    for gate in ("both", "answer", "r1_zero"):
        check_gates(build_rewards([entries[0], RewardEntry(name="format", only_if=gate)]), problems)


def test_a_reward_that_cannot_grade_a_made_up_text_is_left_to_the_run(tmp_path):
    (tmp_path / "picky.py").write_text("def picky(completions):\n    raise ValueError('not this')\n")
    entries = [RewardEntry(name=f"{tmp_path}/picky.py:picky"), RewardEntry(name="format", only_if="nothing")]
    check_gates(build_rewards(entries), [Problem("1+1?", "2")])
