"""Plans: what a recipe needs is near what its run takes, and what does not fit is told a way out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from peaks import ROOT, environment, peak_of
from tiny import save_tiny_model

from trlmath.cli import cli
from trlmath.errors import DataError, RecipeError
from trlmath.planning.advice import knobs
from trlmath.planning.facts import Facts
from trlmath.planning.generation import room
from trlmath.planning.machine import Machine, size
from trlmath.planning.plan import plan_of
from trlmath.planning.steps import steps_of
from trlmath.recipe import load_recipe, parse_recipe
from trlmath.sampling.memory_share import WORKSPACE

MIB = 2**20
# one prompt a step: the forward on fake tensors is short
SMALL = ["rollout.prompts_per_step=2", "rollout.group_size=4", "sampling.engine=transformers"]


def cpu(mebibytes=8192):
    return Machine(False, mebibytes * MIB, "a test's machine")


def planned(overrides=(), algorithm="grpo", machine=None, **options):
    recipe = load_recipe(f"nano/{algorithm}", [*(SMALL if algorithm == "grpo" else ()), *overrides])
    return plan_of(recipe, algorithm, machine or cpu(), resident=700 * MIB, **options), recipe


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [("80GB", 80 * 2**30), ("24G", 24 * 2**30), ("512 MiB", 512 * 2**20), ("1.5GB", 3 * 2**29)],
)
def test_sizes(given, bytes_):
    assert size(given) == bytes_


@pytest.mark.parametrize("given", ["", "big", "0GB", "-4GB", "80GBB", "24", "24B"])
def test_sizes_that_are_none(given):
    with pytest.raises(RecipeError, match="allowed: a size with its unit: 80GB"):
        size(given)


def test_more_rollouts_than_can_be_cut_are_refused_at_once():
    with pytest.raises(RecipeError, match="2 prompts x 100,000,000 completions .* goes up to 100,000"):
        planned(["rollout.group_size=100000000"])


def test_the_parts_of_each_phase():
    plan, _ = planned()
    phases = {phase.name: phase.parts for phase in plan.phases}
    assert list(phases) == ["generate", "update", "optimizer", "evaluate"]
    weights = 1_111_168 * 4
    assert phases["update"]["weights"] == phases["update"]["gradients"] == weights
    assert phases["update"]["optimizer"] == 2 * weights
    longest = plan.facts.longest_prompt
    assert phases["generate"]["cache"] == 8 * room(longest, 96) * 4096
    assert plan.peak.name == "update"
    assert plan.fits
    assert plan.steps.rollouts == 8


def test_what_each_choice_adds_or_saves():
    base = {p.name: p.parts for p in planned(longest_prompt=100)[0].phases}
    told = {
        name: {p.name: p.parts for p in planned([change], longest_prompt=100)[0].phases}
        for name, change in {
            "beta": "trainer.beta=0.1",
            "lora": "model.lora={r: 4, target_modules: all-linear}",
            "checkpointing": "trainer.gradient_checkpointing=true",
            "bfloat16": "model.dtype=bfloat16",
            "several": "rollout.epochs_per_rollout=2",
        }.items()
    }
    weights = base["update"]["weights"]
    assert told["beta"]["update"]["reference"] == weights
    assert "reference" in told["beta"]
    assert "old log-probabilities" in told["several"]
    assert told["lora"]["update"]["gradients"] < weights / 10
    assert told["checkpointing"]["update"]["activations"] < 0.8 * base["update"]["activations"]
    assert told["bfloat16"]["update"]["weights"] == weights / 2


def test_a_narrower_budget_takes_less_and_layers_add_up():
    wide = planned(["rollout.prompts_per_step=4"])[0]
    narrow = planned(["rollout.prompts_per_step=4", "rollout.microbatch_tokens=512"])[0]
    of = [{p.name: p.parts for p in plan.phases}["update"]["activations"] for plan in (wide, narrow)]
    assert 0.2 * of[0] < of[1] < 0.5 * of[0]  # a quarter of the tokens


def test_steps_of_each_algorithm():
    facts = Facts(100, 1000, (200,) * 32, 50, 96)
    grpo = steps_of(
        parse_recipe({"rollout": {"prompts_per_step": 10, "group_size": 4, "updates_per_rollout": 2}}),
        "grpo",
        facts,
    )
    assert (grpo.rollouts, grpo.tokens, grpo.count, grpo.all_updates) == (40, 3840, 300, 600)
    assert (grpo.evaluations, grpo.evaluated) == (2, 2 * 50 * 2 * 96)
    sft = steps_of(
        parse_recipe({"trainer": {"num_train_epochs": 2}, "evaluation": {"every": 10}}), "sft", facts
    )
    assert (sft.count, sft.all_updates, sft.tokens, sft.evaluations) == (64, 64, 6400, 8)
    section = {"iterations": 3, "problems_per_iteration": 100, "epochs": 2}
    recipe = parse_recipe({"expert_iteration": section, "rollout": {"group_size": 4}})
    rounds = steps_of(recipe, "expert_iteration", facts)
    assert (rounds.rollouts, rounds.updates, rounds.count, rounds.evaluations) == (400, 26, 3, 4)
    unknown = steps_of(parse_recipe({}), "grpo", Facts(100, None))
    assert unknown.count is None
    assert unknown.all_tokens is None


def test_what_does_not_fit_is_told_a_knob_that_makes_it_fit():
    overrides = ["rollout.prompts_per_step=8", "rollout.microbatch_tokens=4096"]
    whole, _ = planned(overrides)
    least = whole.peak.total / MIB
    plan, recipe = planned(overrides, machine=cpu(least - 20))
    assert not plan.fits
    found = {knob.changes[0].partition("=")[0]: knob for knob in knobs(plan, recipe)}
    budget = found["rollout.microbatch_tokens"]
    assert budget.fits
    again, _ = planned([*overrides, *budget.changes], machine=cpu(least - 20))
    assert again.fits
    assert again.needed == budget.peak


@pytest.mark.parametrize("algorithm", ["sft", "expert_iteration", "evaluate"])
def test_other_algorithms(algorithm):
    plan, _ = planned(
        {"sft": ["batch.size=4"], "expert_iteration": ["batch.size=4"], "evaluate": []}[algorithm], algorithm
    )
    names = [phase.name for phase in plan.phases]
    assert (
        names
        == {
            "sft": ["update", "optimizer", "evaluate"],
            "expert_iteration": ["generate", "update", "optimizer", "evaluate"],
            "evaluate": ["generate"],
        }[algorithm]
    )


def test_a_colocated_engine_takes_what_is_of_use_or_there_is_room_for():
    changes = ["sampling.engine=vllm", "evaluation.enabled=false"]
    engines = {}
    for name, gibibytes, more in (
        ("wide", 80, []),
        ("narrow", 3.38, []),
        ("asleep", 3.38, ["sampling.sleep=true"]),
    ):
        gpu = Machine(True, int(gibibytes * 2**30), "a GPU")
        plan, _ = planned([*changes, *more], machine=gpu, longest_prompt=121)
        engines[name] = {p.name: p.parts.get("engine") for p in plan.phases}
    need = 1_111_168 * 4 + WORKSPACE + (8 * 256 + 128) * 4096
    assert engines["wide"]["update"] == engines["wide"]["generate"] == need
    assert engines["narrow"]["generate"] < need
    assert engines["asleep"]["update"] is None
    assert engines["asleep"]["generate"] == need


def test_an_engines_options_and_the_dtype_it_is_given_count():
    gpu = Machine(True, 80 * 2**30, "a GPU")
    changes = ["sampling.engine=vllm", "evaluation.enabled=false", "trainer.bf16=true"]
    changes += ["sampling.engine_options={kv_cache_dtype: fp8, max_num_seqs: 4}"]
    plan, _ = planned(changes, machine=gpu, longest_prompt=121)
    engine = next(phase.parts["engine"] for phase in plan.phases if phase.name == "generate")
    assert engine == 1_111_168 * 2 + WORKSPACE + (4 * 256 + 128) * 4096 // 4


def test_a_shipped_recipe_whose_model_and_data_are_not_here(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    command = ["plan", "recipes/qwen2.5-math-1.5b/grpo.yaml", "--gpu", "80GB", "--json"]
    done = CliRunner().invoke(cli, [*command, "rollout.microbatch_tokens=2048"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["model"]["parameters"] == 1_543_714_304
    assert told["longest_prompt"] == 1024  # the recipe's filter bounds it
    assert any("not on this machine" in note for note in told["notes"])
    assert told["fits"]
    engine = next(phase["parts"]["engine"] for phase in told["phases"] if phase["phase"] == "update")
    assert engine == int(0.35 * 80 * 2**30)  # as the recipe has it


def test_what_an_iteration_could_not_draw_is_found_by_its_plan():
    with pytest.raises(DataError, match="leaves 4 training problems, and an iteration draws 64"):
        planned(
            ["data.train_size=4", "rollout.prompts_per_step=4", "expert_iteration.problems_per_iteration=64"],
            "expert_iteration",
        )


def test_a_model_that_nobody_knows_here(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(RecipeError, match=r"hf download nobody/nothing config\.json"):
        planned(["model.path=nobody/nothing"])


def test_a_model_without_shared_prompts_is_planned_padded(tmp_path):
    folder = save_tiny_model(tmp_path / "m", use_sliding_window=True, sliding_window=64, max_window_layers=0)
    plan, _ = planned([f"model.path={folder}", "sampling.max_tokens=16"], longest_prompt=64)
    assert plan.peak.total > 0


@pytest.mark.slow
def test_a_plan_is_within_15_percent_of_what_the_run_takes(tmp_path):
    own = ["rollout.prompts_per_step=8", "trainer.max_steps=1", "sampling.min_tokens=96"]
    own += ["sampling.engine=transformers", "evaluation.enabled=false", "run.report=false"]
    own += ["run.report_to=none"]
    command = [sys.executable, "-m", "trlmath", "plan", "nano/grpo", "--json", *own]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=240)
    told = json.loads(done.stdout)
    taken = peak_of("grpo", [*own, f"run.dir={tmp_path / 'run'}"], tmp_path / "log")
    # of which a third is what the micro-batch takes
    assert told["peak_bytes"] / MIB == pytest.approx(taken, rel=0.15)
    update = next(phase for phase in told["phases"] if phase["phase"] == "update")
    assert update["parts"]["activations"] > 0.3 * told["peak_bytes"]
