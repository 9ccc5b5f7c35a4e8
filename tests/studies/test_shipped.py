"""The shipped studies are complete, and those at nano scale can start here."""

from __future__ import annotations

import pytest

from trlmath.recipe import check_sections, check_trainer, load_recipe, shipped_studies
from trlmath.recipe.shipped import recipes_folder
from trlmath.studies.check import find_config
from trlmath.studies.expand import expand
from trlmath.studies.schema import load_study
from trlmath.studies.study import Study

ABLATIONS = ("learning-rate", "baseline", "length-normalisation", "std", "off-policy", "clip", "prompt")
EXPECTED = {"nano/study", "nano/road", "qwen2.5-math-1.5b/road", "qwen2.5-math-1.5b/sft-sizes"} | {
    f"{folder}/ablations/{name}" for folder in ("nano", "qwen2.5-math-1.5b") for name in ABLATIONS
}


def test_the_promised_studies_are_there():
    assert set(shipped_studies()) >= EXPECTED


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_recipe_of_a_shipped_study_is_valid(name):
    study, file = load_study(name)
    assert file.read_text().startswith("# "), "`trlmath recipes list` shows the first comment"
    for run in expand(study, file.parent):
        recipe = load_recipe(find_config(run.recipe, file.parent), run.arguments())
        assert recipe.source.is_relative_to(recipes_folder().resolve())
        check_sections(recipe, run.algorithm)
        if run.algorithm != "evaluate":
            check_trainer(recipe, run.algorithm)


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if name.startswith("nano/")))
def test_the_nano_studies_can_start(name, tmp_path):
    study = Study(name, directory=tmp_path)
    assert len(study.runs) >= 2
    assert all(state.why == "new" for state in study.states.values())


def test_the_nano_study_compares_everything_with_what_it_changes(tmp_path):
    runs = {run.run.name: run for run in Study("nano/study", directory=tmp_path).runs}
    assert set(runs) == {
        *("zero-shot", "sft-128", "sft-512", "sft-all", "sft-wrong", "sft-filtered"),
        *("ei-g4", "ei-g8", "ei-g4-no-diversity", "ei-g4-no-elites", "ei-g4-no-threshold"),
        *("grpo-std", "grpo-no-std"),
    }
    full = [f.name for f in runs["ei-g4"].recipe.filters]
    without = {
        "ei-g4-no-diversity": {"near_duplicate", "per_problem"},
        "ei-g4-no-elites": {"elite"},
        "ei-g4-no-threshold": {"rising_threshold"},
    }
    options = {f.name: f.options for f in runs["ei-g4"].recipe.filters}
    for name, removed in without.items():
        filters = runs[name].recipe.filters
        assert [f.name for f in filters] == [f for f in full if f not in removed], name
        assert all(f.options == options[f.name] for f in filters), name
    sizes = {
        (run.recipe.evaluation.limit, run.recipe.data.eval.options["eval_size"]) for run in runs.values()
    }
    assert sizes == {(512, 512)}


@pytest.mark.parametrize("folder", ["nano", "qwen2.5-math-1.5b"])
def test_the_clip_ablation_changes_clipping_only(folder):
    study, file = load_study(f"{folder}/ablations/clip")
    one, two = (
        load_recipe(find_config(run.recipe, file.parent), run.arguments()).to_dict()
        for run in expand(study, file.parent)
    )
    for recipe in (one, two):
        recipe["trainer"] = {
            k: v for k, v in recipe["trainer"].items() if k not in ("epsilon", "epsilon_high")
        }
    assert one["rollout"].pop("clip") is True
    assert two["rollout"].pop("clip") is False
    assert one == two
