"""Checks that a run makes before any weight loads: processes, context, rows, components, trainer, lora."""

from __future__ import annotations

import dataclasses

import pytest

from trlmath.errors import DataError, PluginError, RecipeError
from trlmath.recipe import (
    check_components,
    check_context,
    check_enough_prompts,
    check_processes,
    check_reward_timeout,
    check_trainer,
    load_recipe,
    parse_recipe,
)
from trlmath.recipe.owned import IDLE_BY, OWNED
from trlmath.recipe.run_checks import _CHOICES


def test_processes_must_divide_every_update():
    recipe = parse_recipe({"rollout": {"prompts_per_step": 6, "group_size": 4, "updates_per_rollout": 2}})
    for processes in (1, 2, 3, 6):
        check_processes(recipe, processes)
    for processes in (4, 5, 12):  # 4 and 12 divide the 24 completions, but would cut a prompt's group in two
        with pytest.raises(RecipeError, match=f"6 prompts .* {processes} processes.*multiple of {processes}"):
            check_processes(recipe, processes)
    recipe = parse_recipe({"rollout": {"prompts_per_step": 6, "group_size": 2, "updates_per_rollout": 4}})
    with pytest.raises(RecipeError, match="12 completions .* 4 updates on 6 processes.*multiple of 24"):
        check_processes(recipe, 6)


def test_prompt_and_completion_must_fit_the_context():
    recipe = parse_recipe({"sampling": {"max_tokens": 100}})
    check_context(recipe, 256, 156)
    with pytest.raises(
        RecipeError, match=r"sampling.max_tokens.*157 tokens.*257, over the context of 256.*at most 99"
    ):
        check_context(recipe, 256, 157)
    with pytest.raises(RecipeError, match="prompt alone fills the context"):
        check_context(recipe, 256, 256)


def test_one_prompt_fewer_than_a_step_needs():
    recipe = parse_recipe({"rollout": {"prompts_per_step": 8}})
    check_enough_prompts(recipe, 8)
    with pytest.raises(DataError, match="leaves 7 training rows, and a step needs 8.*at most 7"):
        check_enough_prompts(recipe, 7)


def test_components_are_resolved_and_their_options_checked():
    check_components(parse_recipe({"filters": [{"name": "prompt_length", "options": {"max": 9}}]}))
    with pytest.raises(PluginError, match="rewards.0: no reward is called 'r1zero'. Did you mean 'r1_zero'"):
        check_components(parse_recipe({"rewards": ["r1zero"]}))
    with pytest.raises(RecipeError, match="advantage: .*no option 'sdt'. Did you mean 'std'"):
        check_components(parse_recipe({"advantage": {"name": "group", "options": {"sdt": True}}}))


def test_all_wrong_components_are_named_at_once():
    recipe = parse_recipe(
        {
            "filters": ["prompt_length", "duplicat"],
            "data": {"train": "nanoo", "prompt": "r1"},
            "advantage": {"name": "group", "options": {"eps": "small"}},
        }
    )
    with pytest.raises((PluginError, RecipeError)) as caught:
        check_components(recipe)
    for key in ("filters.0", "filters.1", "data.train", "data.prompt", "advantage"):
        assert f"{key}: " in str(caught.value)


def test_files_and_hub_ids_are_left_to_the_data_room():
    check_components(
        parse_recipe({"data": {"train": "rows.jsonl", "eval": "owner/name", "prompt": "a.prompt"}})
    )


def test_trainer_values_take_the_types_of_grpoconfig():
    recipe = parse_recipe(
        {"trainer": {"learning_rate": "1e-6", "weight_decay": 0, "max_steps": "5", "fp16": "no"}}
    )
    check_trainer(recipe)
    assert recipe.trainer == {"learning_rate": 1e-6, "weight_decay": 0.0, "max_steps": 5, "fp16": False}
    assert isinstance(recipe.trainer["weight_decay"], float)


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ({"learnin_rate": 1}, "trainer.learnin_rate: .*Did you mean 'learning_rate'"),
        ({"max_steps": "many"}, "trainer.max_steps: got 'many'; allowed: int"),
        ({"max_steps": True}, "trainer.max_steps: got True"),
        ({"lr_scheduler_type": "constnat"}, "trainer.lr_scheduler_type: .*Did you mean 'constant'"),
        ({"optim": "adamw_troch"}, "trainer.optim: .*Did you mean 'adamw_torch'"),
        ({"loss_type": "drgrpo"}, "trainer.loss_type: .*Did you mean 'dr_grpo'"),
        ({"learning_rate": float("nan")}, "trainer.learning_rate: got nan; allowed: a finite number"),
        ({"weight_decay": float("inf")}, "trainer.weight_decay: got inf; allowed: a finite number"),
        ({"learning_rate": -1}, "trainer.learning_rate: got -1.0; allowed: at least 0"),
        ({"adam_beta1": 2}, "trainer.adam_beta1: got 2.0; allowed: at least 0 and less than 1"),
        ({"max_steps": 0}, "trainer.max_steps: got 0; allowed: at least 1, or -1"),
        ({"num_train_epochs": -1}, "trainer.num_train_epochs: got -1.0; allowed: more than 0"),
        ({"dataloader_num_workers": -1}, "trainer.dataloader_num_workers: got -1; allowed: at least 0"),
        ({"log_level": "inf"}, "trainer.log_level: .*Did you mean 'info'"),
    ],
)
def test_a_wrong_trainer_argument_is_named(trainer, expected):
    with pytest.raises(RecipeError, match=expected):
        check_trainer(parse_recipe({"trainer": trainer}))


def test_owned_arguments_exist_in_trl_or_once_did():
    from trl import GRPOConfig

    names = {field.name for field in dataclasses.fields(GRPOConfig)}
    gone = {"max_prompt_length", "logging_dir"}  # of earlier releases, still in people's scripts
    assert set(OWNED) - names == gone


def test_every_sampling_and_batch_argument_of_trl_is_owned():
    from trl import GRPOConfig

    names = {field.name for field in dataclasses.fields(GRPOConfig)}
    ours = {n for n in names if n.startswith(("vllm_", "num_gen", "generation_", "per_device"))}
    # the importance correction is part of the loss, not of sampling
    loss = {n for n in names if n.startswith("vllm_importance_sampling")}
    assert ours - loss <= {*OWNED, *IDLE_BY["grpo"]}


def test_the_loss_types_are_those_that_trl_computes():
    import inspect

    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._compute_loss)
    for name in _CHOICES["loss_type"]:
        assert f'"{name}"' in source


def test_a_reporter_is_known_and_installed(monkeypatch):
    from transformers import integrations

    with pytest.raises(RecipeError, match="run.report_to: got 'wandbb'.*Did you mean 'wandb'"):
        check_trainer(parse_recipe({"run": {"report_to": "wandbb"}}))
    monkeypatch.setattr(integrations, "get_available_reporting_integrations", lambda: ["mlflow"])
    with pytest.raises(RecipeError, match="run.report_to: 'wandb' is not installed"):
        check_trainer(parse_recipe({"run": {"report_to": "wandb"}}))
    check_trainer(parse_recipe({"run": {"report_to": "mlflow"}}))


@pytest.mark.parametrize(
    ("data", "algorithm", "wanted"),
    [
        ({"early_stop": {}}, "sft", "early_stop: .* evaluation.every"),
        ({"early_stop": {}, "evaluation": {"enabled": False}}, "expert_iteration", "early_stop: "),
        ({"run": {"keep_best": "eval/both"}}, "grpo", "run.keep_best: .* evaluation.every"),
        ({"early_stop": {}, "run": {"keep_best": "eval/both"}}, "sft", "early_stop: .*\nrun.keep_best: "),
    ],
)
def test_what_waits_for_an_evaluation_that_never_comes_is_refused(data, algorithm, wanted):
    from trlmath.recipe import check_sections, parse_recipe

    with pytest.raises(RecipeError, match=wanted):
        check_sections(parse_recipe(data), algorithm)
    every = 0 if algorithm == "expert_iteration" else 5
    check_sections(parse_recipe({**data, "evaluation": {"every": every}}), algorithm)


def test_a_best_checkpoint_that_no_evaluation_could_keep_is_refused():
    from trlmath.recipe import check_sections, parse_recipe

    def check(every, algorithm="grpo"):
        run, rollout = {"keep_best": "eval/both"}, {"updates_per_rollout": 2, "epochs_per_rollout": 2}
        evaluation = {"every": every}
        check_sections(parse_recipe({"run": run, "rollout": rollout, "evaluation": evaluation}), algorithm)

    with pytest.raises(
        RecipeError, match="evaluation.every=6 evaluates within a rollout phase of 4 .* multiple of 4"
    ):
        check(6)
    check(8)


def test_a_section_that_the_algorithm_does_not_read_is_an_error():
    from trlmath.recipe import check_sections, parse_recipe

    recipe = parse_recipe({"batch": {"size": 4}})
    check_sections(recipe, "sft")
    with pytest.raises(RecipeError, match="batch: is not read by grpo: GRPO's step is set by `rollout`"):
        check_sections(recipe, "grpo")
    written = parse_recipe(parse_recipe({}).to_dict())
    check_sections(written, "sft")  # the defaults of `rollout` and `advantage`, written out


@pytest.mark.parametrize(
    ("data", "algorithm", "key"),
    [
        ({"rollout": {"clip": False}}, "expert_iteration", "rollout.clip"),
        ({"batch": {"over_long": "cut"}}, "expert_iteration", "batch.over_long"),
        ({"evaluation": {"every": 3}}, "expert_iteration", "evaluation.every"),
    ],
)
def test_a_key_that_an_algorithm_would_not_read_is_refused(data, algorithm, key):
    from trlmath.recipe import check_sections, parse_recipe

    with pytest.raises(RecipeError, match=f"^{key}: is not read by {algorithm}: .* Remove the key"):
        check_sections(parse_recipe(data), algorithm)
    check_sections(parse_recipe({"batch": {}, "run": {"resume": "auto"}}), "expert_iteration")


def test_the_limit_of_rewards_is_read_as_written_and_under_the_processes_patience():
    assert load_recipe("nano/grpo").checks.reward_timeout == 300
    off = load_recipe("nano/grpo", ["checks.reward_timeout=off"])
    assert off.checks.reward_timeout is None
    assert parse_recipe({"checks": {"reward_timeout": False}}).checks.reward_timeout is None
    check_reward_timeout(off, 2, 1800)
    long = load_recipe("nano/grpo", ["checks.reward_timeout=3600"])
    check_reward_timeout(long, 1, 1800)
    check_reward_timeout(long, 2, 7200)
    with pytest.raises(RecipeError, match=r"checks.reward_timeout: got 3600; .*ddp_timeout, 1800 seconds"):
        check_reward_timeout(long, 2, 1800)
    with pytest.raises(RecipeError, match=r"checks.reward_timeout: got 0; allowed: .*greater than 0"):
        load_recipe("nano/grpo", ["checks.reward_timeout=0"])
    with pytest.raises(RecipeError, match=r"checks.on_reward_error: got 'skip'; allowed: .*unscorable"):
        load_recipe("nano/grpo", ["checks.on_reward_error=skip"])
