"""Entries become runs: grids, seeds, names, order, and every mistake with its nearest match."""

from __future__ import annotations

from pathlib import Path

import pytest

from trlmath.errors import RecipeError
from trlmath.studies.expand import expand
from trlmath.studies.schema import StudyFile, find_study, load_study, study_name


def study(*runs, **keys):
    entries = [{"algorithm": "grpo", "recipe": "nano/grpo", **run} for run in runs]
    return StudyFile.model_validate({"runs": entries, **keys})


def runs_of(*runs, overrides=(), folder=Path(), **keys):
    return expand(study(*runs, **keys), folder, overrides)


def names(*runs, **keys):
    return [run.name for run in runs_of(*runs, **keys)]


def test_a_grid_is_every_combination_and_seeds_share_a_group():
    found = runs_of(
        {
            "name": "a",
            "vary": {"advantage.options.std": [True, False], "trainer.learning_rate": [1e-6, 1e-5]},
            "seeds": [0, 1],
        }
    )
    assert len(found) == 8
    assert found[0].name == "a-std=true,learning_rate=1e-06-seed0"
    assert found[1].group == found[0].group == "a-std=true,learning_rate=1e-06"
    assert found[-1].arguments() == [
        "run.seed=1",
        "advantage.options.std=false",
        "trainer.learning_rate=1e-05",
    ]


def test_labels_of_a_mapping_and_of_components():
    assert names({"name": "sft", "vary": {"data.train_size": {128: 128, "all": None}}}) == [
        "sft-128",
        "sft-all",
    ]
    assert names({"name": "a", "vary": {"advantage": [{"name": "none"}, "group", None, ["x"]]}}) == [
        "a-advantage=none",
        "a-advantage=group",
        "a-advantage=null",
        "a-advantage=3",
    ]


def test_what_comes_later_wins():
    (run,) = runs_of(
        {"name": "a", "set": {"sampling.top_p": 0.2}, "vary": {"sampling.top_k": [3]}, "seeds": [5]},
        base={"sampling.top_p": 0.1, "model.dtype": "bfloat16"},
        evaluation={"limit": 7, "settings": [{"name": "g", "temperature": 0.0}]},
        overrides=["sampling.top_p=0.3", "a:sampling.top_p=0.4", "grpo:sampling.top_p=0.5"],
    )
    assert run.arguments() == [
        "run.seed=5",
        'model.dtype="bfloat16"',
        "evaluation.limit=7",
        'evaluation.settings=[{"name": "g", "temperature": 0.0}]',
        "sampling.top_k=3",
        "sampling.top_p=0.5",
    ]


def test_a_section_replaces_the_keys_set_in_it_before():
    pairs = {"filters.0.options.max": 3, "filters": ["duplicate"], "filters.1": "length"}
    (run,) = runs_of({"name": "a", "set": pairs})
    assert run.arguments() == ['filters=["duplicate"]', 'filters.1="length"']


def test_one_of_several_runs_is_named_on_the_command_line():
    found = runs_of(
        {"name": "a", "vary": {"advantage.options.std": [True, False]}, "seeds": [0, 1]},
        overrides=["a-std=true:sampling.top_p=0.1", "a-std=false-seed1:sampling.top_p=0.2"],
    )
    told = {run.name: dict(run.overrides).get("sampling.top_p") for run in found}
    assert told == {
        "a-std=true-seed0": 0.1, "a-std=true-seed1": 0.1, "a-std=false-seed0": None, "a-std=false-seed1": 0.2
    }  # fmt: skip


def test_files_beside_the_study_are_found(tmp_path):
    (tmp_path / "mine.jsonl").write_text("")
    (run,) = runs_of({"name": "a", "set": {"data.train": "mine.jsonl"}}, folder=tmp_path)
    assert run.overrides == (("data.train", str(tmp_path / "mine.jsonl")),)
    (run,) = runs_of({"name": "a", "set": {"rewards": [{"name": "mine.jsonl"}]}}, folder=tmp_path)
    assert run.overrides == (("rewards", [{"name": str(tmp_path / "mine.jsonl")}]),)


def test_a_run_comes_after_the_one_it_starts_from():
    found = runs_of(
        {"name": "c", "set": {"model.path": "run:b"}},
        {"name": "b", "set": {"model.path": "run:a"}},
        {"name": "other"},
        {"name": "a"},
    )
    assert [(run.name, run.source) for run in found] == [
        ("other", None),
        ("a", None),
        ("b", "a"),
        ("c", "b"),
    ]
    assert all("model.path" not in argument for run in found for argument in run.arguments())


def test_a_run_starts_from_the_same_seed_of_a_group():
    found = runs_of(
        {"name": "a", "seeds": [0, 1]},
        {"name": "b", "seeds": [1, 0], "set": {"model.path": "run:a"}},
        {"name": "c", "set": {"model.path": "run:a-seed1"}},
    )
    assert {run.name: run.source for run in found if run.source} == {
        "b-seed1": "a-seed1",
        "b-seed0": "a-seed0",
        "c": "a-seed1",
    }


@pytest.mark.parametrize(
    ("runs", "pieces"),
    [
        (
            [{"name": "sft"}, {"name": "b", "set": {"model.path": "run:stf"}}],
            ["Did you mean 'sft'", "b: model.path"],
        ),
        ([{"name": "a", "set": {"model.path": "run:a"}}], ["start from each other", "a -> a"]),
        (
            [{"name": "a", "set": {"model.path": "run:b"}}, {"name": "b", "set": {"model.path": "run:a"}}],
            ["start from each other"],
        ),
        ([{"name": "a"}, {"name": "a"}], ["2 runs are called 'a'"]),
        ([{"name": "a", "set": {"run.dir": "x"}}], ["run.dir is decided by the study"]),
        ([{"name": "a", "set": {"run": {"dir": "x"}}}], ["run.dir is decided by the study"]),
        ([{"name": "a", "set": {"trainr.x": 1}}], ["no section 'trainr'", "Did you mean 'trainer'"]),
        ([{"name": "a", "seeds": [1], "set": {"run.seed": 3}}], ["given twice"]),
        ([{"name": "a"}, {"name": "b", "set": {"model": {"path": "run:a"}}}], ["a dotted key"]),
        (
            [{"name": "a", "seeds": [0, 1]}, {"name": "b", "set": {"model.path": "run:a"}}],
            ["could be a-seed0, a-seed1", "same `seeds`"],
        ),
        (
            [{"name": "z", "algorithm": "evaluate"}, {"name": "b", "set": {"model.path": "run:z"}}],
            ["makes no model"],
        ),
    ],
)
def test_mistakes(runs, pieces):
    with pytest.raises(RecipeError) as caught:
        runs_of(*runs)
    for piece in pieces:
        assert piece in str(caught.value)


@pytest.mark.parametrize(
    ("override", "piece"),
    [
        ("grop:trainer.max_steps=1", "Did you mean 'grpo'"),
        ("max_steps", "not of the form"),
        ("a:=1", "not of the form"),
    ],
)
def test_mistakes_of_the_command_line(override, piece):
    with pytest.raises(RecipeError, match=piece):
        runs_of({"name": "a"}, overrides=[override])


def test_every_wrong_key_of_a_file_is_told(tmp_path):
    file = tmp_path / "study.yaml"
    file.write_text(
        "basis: {}\nruns:\n  - {name: a b, algorithm: grpo}\n  - {name: c, recipes: x, algorithm: grpo}\n"
    )
    with pytest.raises(RecipeError) as caught:
        load_study(file)
    text = str(caught.value)
    assert "basis: unknown key. Did you mean 'base'?" in text
    assert "runs.0.name: got 'a b'" in text
    assert "runs.0.recipe: is required" in text
    assert "runs.1.recipes: unknown key. Did you mean 'recipe'?" in text
    assert "trainer" not in text


def test_a_recipe_is_no_study_and_an_unknown_name_gets_its_nearest(tmp_path):
    with pytest.raises(RecipeError, match="no study 'nano/stdy'"):
        find_study("nano/stdy")
    file = tmp_path / "r.yaml"
    file.write_text("run: {seed: 1}\n")
    with pytest.raises(RecipeError, match="A single recipe is started with its script"):
        load_study(file)


def test_the_directory_is_named_after_folder_and_file(tmp_path):
    assert study_name(tmp_path / "nano" / "road.yaml") == "nano-road"
    assert study_name(tmp_path / "recipes" / "road.yaml") == "road"
