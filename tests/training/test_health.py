"""Each check strikes on what it is for, and stays silent on a run that learns."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

from trlmath.errors import TrainingError
from trlmath.recipe import load_recipe
from trlmath.recipe.schema import ChecksSection
from trlmath.training.health import CHECKS, NAMES, Health
from trlmath.training.health_callback import HealthCheck, validation_of


def recipe(*overrides, **checks):
    return load_recipe(
        "nano/sft", [*(f"checks.{name}={value}" for name, value in checks.items()), *overrides]
    )


def struck(rows, window=4):
    health = Health(window)
    return [f for row in rows for f in health.step(row)]


def grpo(**changes):
    return {
        "train/loss": 0.01,
        "train/grad_norm": 0.5,
        "train/reward": 0.4,
        "train/entropy": 0.4,
        "train/frac_reward_zero_std": 0.3,
        "train/completions/mean_length": 100.0,
        "train/completions/clipped_ratio": 0.1,
        "train/clip_ratio/region_mean": 0.02,
        "train/rows_with_advantage": 1.0,
        "engine/importance_sampling_ratio/mean": 1.0,
        **changes,
    }


FLAT = grpo(**{"train/entropy": None, "train/clip_ratio/region_mean": 0.0, "train/rows_with_advantage": 0.0})


def test_a_step_that_computes_nothing_has_no_entropy_to_judge():
    assert struck([*[grpo()] * 4, *[FLAT] * 9]) == []
    # a first window without any does not switch the check off
    found = struck([*[FLAT] * 5, *[grpo()] * 4, *[grpo(**{"train/entropy": 0.01}), FLAT] * 4])
    assert {f.check for f in found} == {"entropy_collapse"}


def test_the_share_of_clipped_tokens_is_of_rows_that_can_be_clipped():
    half = grpo(**{"train/clip_ratio/region_mean": 0.48, "train/rows_with_advantage": 0.5})
    assert {f.check for f in struck([half] * 3)} == {"exploding_ratio"}
    assert struck([{**half, "train/clip_ratio/region_mean": 0.4}] * 3) == []


FALLING = [{"eval/both": x, "eval/format": 1.0} for x in (0.6, 0.54, 0.5, 0.45)]


def test_a_run_that_learns_is_left_alone():
    rows = [
        grpo(**{"train/reward": 0.3 + i / 100, "train/entropy": 0.5 - i / 150, "train/loss": (-1) ** i * 0.1})
        for i in range(50)
    ]
    assert struck([*rows, {"eval/both": 0.3}, {"eval/both": 0.6}], window=20) == []


@pytest.mark.parametrize(
    ("rows", "check", "words"),
    [
        ([grpo(**{"train/loss": math.nan})], "nan", "train/loss is not a number"),
        ([grpo(**{"train/grad_norm": None})], "nan", "train/grad_norm"),
        ([grpo(**{"train/loss": math.inf})], "nan", "learning_rate"),
        ([grpo(**{"engine/importance_sampling_ratio/mean": 7.3})], "exploding_ratio", "factor of 7.30"),
        ([grpo(**{"train/clip_ratio/region_mean": 0.97})] * 3, "exploding_ratio", "over 90% of the tokens"),
        ([*[grpo()] * 4, *[grpo(**{"train/entropy": 0.01})] * 4], "entropy_collapse", "2.5% of what it was"),
        ([grpo(**{"train/frac_reward_zero_std": 1.0})] * 4, "flat_reward", "in 4 steps (mean reward 0.40)"),
        (
            [{"train/loss": x} for x in (1.0, 1.01, 1.0, 0.99, 0.5, 2.5, 0.4, 3.0)],
            "oscillating_loss",
            "went up and down 4 times in 4 steps, by over 0.15 each; before, it stayed within 0.0133",
        ),
        (
            [*[grpo()] * 4, *[grpo(**{"train/completions/mean_length": 9.0})] * 4],
            "length_collapse",
            "9% as long",
        ),
        ([grpo(**{"train/completions/clipped_ratio": 1.0})] * 2, "all_truncated", "of 2 steps was cut off"),
        (FALLING, "falling_validation", "eval/both was at 0.6 and is at 0.45, worse than noise"),
    ],
)
def test_each_check_strikes_and_says_how_to_switch_it_off(rows, check, words):
    found = struck(rows)
    assert {f.check for f in found} == {check}
    assert words in str(found[-1])
    assert f"checks.{check}: off" in str(found[-1])
    assert check in CHECKS


def iteration(number, **changes):
    return {
        "train/iteration": number,
        "train/reward": 0.4,
        "train/sampled_entropy": 0.5,
        "train/frac_reward_zero_std": 0.5,
        "train/completions/mean_length": 100.0,
        "train/completions/clipped_ratio": 0.1,
        **{f"train/{name}": value for name, value in changes.items()},
    }


SFT = [{"train/loss": 1.0 - i / 20} for i in range(8)]


def test_an_expert_iteration_that_learns_is_left_alone():
    rows = []
    for number in range(5):
        # the loss jumps with each iteration's traces, which is no oscillation
        rows += [iteration(number, reward=0.3 + number / 10, sampled_entropy=0.5 - number / 15)]
        rows += [{"train/loss": 1 + number + i / 100} for i in range(6)] + [{"eval/both": 0.3 + number / 20}]
    assert struck(rows) == []


@pytest.mark.parametrize(
    ("rows", "check", "words"),
    [
        ([iteration(0), iteration(1, sampled_entropy=0.01)], "entropy_collapse", "2.0% of what it was"),
        (
            [iteration(0), *SFT, iteration(1, **{"completions/mean_length": 9})],
            "length_collapse",
            "9% as long",
        ),
        (
            [iteration(0, **{"completions/clipped_ratio": 1.0})],
            "all_truncated",
            "of an iteration was cut off",
        ),
        (
            [iteration(i, frac_reward_zero_std=1.0, reward=0.0) for i in range(2)],
            "flat_reward",
            "in 2 iterations (mean reward 0.00)",
        ),
        ([iteration(0), *SFT, {"train/loss": math.nan}], "nan", "train/loss is not a number"),
        (
            [iteration(0), *({"train/loss": x} for x in (1.0, 1.01, 1.0, 0.99, 0.5, 2.5, 0.4, 3.0))],
            "oscillating_loss",
            "went up and down 4 times in 4 steps, by over 0.15 each; before, it stayed within 0.0133",
        ),
        (
            [row for i, x in enumerate(FALLING) for row in (iteration(i), x)],
            "falling_validation",
            "was at 0.6 and is at 0.45",
        ),
    ],
)
def test_each_check_strikes_in_expert_iteration(rows, check, words):
    found = struck(rows)
    assert {f.check for f in found} == {check}
    assert words in str(found[-1])


def test_not_before_there_is_enough_to_see():
    assert struck([grpo(**{"train/frac_reward_zero_std": 1.0})] * 3) == []
    assert struck([{"eval/both": x} for x in (0.6, 0.599, 0.598, 0.597)]) == [], "a fall within the noise"
    assert struck(FALLING[:3]) == []
    assert struck([grpo(**{"train/clip_ratio/region_mean": 0.97})] * 2) == []
    assert struck([{"train/loss": 1.0}]) == [], "SFT has no rollouts"
    assert struck([iteration(0, frac_reward_zero_std=1.0)]) == []


def test_every_check_of_the_recipe_exists_and_says_what_helps():
    assert {*CHECKS} < {*ChecksSection.model_fields}
    remedies = struck(FALLING)[0].hint
    for words in (
        *("stop early", "average weights", "learning_rate", "evaluate more often", "temperature"),
        "regularise",
    ):
        assert words in remedies


def test_a_continued_run_is_checked_against_what_it_had_written(tmp_path):
    rows = [{"step": 0, "eval/both": 0.6, "eval/format": 1.0}, {"step": 1, "train/loss": None}]
    rows += [{"step": i, "eval/both": x} for i, x in ((2, 0.54), (4, 0.5))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "step-000004.parquet").touch()
    said = []
    check = HealthCheck(recipe(falling_validation="stop"), said.append, lambda: tmp_path)
    check.recall(main=True)  # the lost loss among them is not acted on again
    with pytest.raises(TrainingError, match=r"falling_validation: .*step-000004\.parquet.*metrics\.jsonl"):
        check.look({"eval/both": 0.5, "eval/format": 1.0}, 6)
    assert said == []


def test_a_warning_is_said_once_and_off_is_off(tmp_path):
    said = []
    for action in ("warn", "off"):
        check = HealthCheck(recipe(window=2, all_truncated=action), said.append, lambda: tmp_path)
        for step in range(5):
            check.look(grpo(**{"train/completions/clipped_ratio": 1.0}), step)
    assert len(said) == 1
    assert said[0].startswith("check    step 0: all_truncated: every completion of 1 steps")


def test_a_step_is_looked_at_before_a_checkpoint_is_written_of_it(tmp_path):
    check = HealthCheck(recipe(), print, lambda: tmp_path)
    control = SimpleNamespace(should_log=False, should_save=True)
    check.on_step_end(None, None, control)
    assert control.should_log


def test_names_are_all_that_is_looked_at():
    used = {name for row in (grpo(), iteration(0)) for name in row}
    assert used == {*NAMES}


def test_evaluations_are_judged_by_what_the_recipe_goes_by():
    greedy = "evaluation.settings=[{name: greedy}]"
    judged = {
        (): ("eval/both", "eval/reward"),
        (greedy,): ("eval_greedy/both", "eval_greedy/reward"),
        ("run.keep_best=eval/answer",): ("eval/answer",),
        ("early_stop.metric=eval_greedy/format", "evaluation.every=1"): ("eval_greedy/format",),
    }
    for overrides, metrics in judged.items():
        assert validation_of(recipe(*overrides), 8).metrics == metrics
    assert validation_of(recipe("evaluation.settings=[{name: greedy, n: 4}]"), 8).completions == 32
    downwards = validation_of(recipe("early_stop.mode=min", "evaluation.every=1"), 8)
    assert downwards.better == -1


def test_a_check_that_has_nothing_to_look_at_says_so_once(tmp_path):
    said = []
    for action in ("warn", "off"):
        check = HealthCheck(recipe(falling_validation=action), said.append, lambda: tmp_path)
        for step in range(3):
            check.look({"eval_greedy/both": 0.5}, step)  # of another setting
            check.look({"eval/format": 0.5}, step)
    assert said == [
        "check    falling_validation has nothing to look at: an evaluation of this recipe has no eval/both "
        "and no eval/reward"
    ]
