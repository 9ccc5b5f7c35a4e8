"""What a run's directory is worth: gone on from, moved aside, or left; and a lock that outlives its maker."""

from __future__ import annotations

import fcntl
import json
import sys
from types import SimpleNamespace

import pytest

from trlmath.errors import DataError, RecipeError
from trlmath.recipe import parse_recipe
from trlmath.studies.children import Child, stop
from trlmath.studies.state import RECORD, make_room, read_record, states

RECIPE = {"run": {"seed": 4}, "trainer": {"learning_rate": 1e-6}}


def left(folder, algorithm, status="interrupted", kept="", recipe=None):
    """A run whose directory holds this."""
    directory = folder / "a"
    directory.mkdir()
    (directory / "recipe.yaml").write_text(parse_recipe(recipe or RECIPE).to_yaml())
    (directory / "manifest.json").write_text(json.dumps({"status": status}))
    if kept:
        (directory / kept).parent.mkdir(parents=True, exist_ok=True)
        (directory / kept).write_text("{}")
    run = SimpleNamespace(name="a", algorithm=algorithm, source=None)
    return SimpleNamespace(run=run, directory=directory, recipe=parse_recipe(RECIPE))


@pytest.mark.parametrize(
    ("algorithm", "kept"),
    [
        ("evaluate", "samples.jsonl"),
        ("expert_iteration", "state/progress.json"),
        ("grpo", "checkpoints/checkpoint-4/files.json"),
        ("sft", "checkpoints/checkpoint-4/files.json"),
    ],
)
def test_what_can_go_on_is_left_in_place(tmp_path, algorithm, kept):
    assert make_room(left(tmp_path, algorithm, kept=kept), tmp_path, other_weights=False) is None
    assert (tmp_path / "a" / kept).is_file()


@pytest.mark.parametrize(
    ("algorithm", "changes", "weights"),
    [
        ("grpo", {}, False),
        ("evaluate", {}, False),  # nothing was kept
        ("evaluate", {"kept": "samples.jsonl"}, True),
        ("evaluate", {"kept": "samples.jsonl", "status": "finished"}, False),
        ("evaluate", {"kept": "samples.jsonl", "recipe": {"run": {"seed": 5}}}, False),
    ],
)
def test_everything_else_is_moved_and_nothing_is_lost(tmp_path, algorithm, changes, weights):
    moved = make_room(left(tmp_path, algorithm, **changes), tmp_path, weights)
    assert moved == tmp_path / "replaced" / "a-1"
    assert (moved / "manifest.json").is_file()
    assert not (tmp_path / "a").exists()
    left(tmp_path, "grpo")
    assert make_room(left_again(tmp_path), tmp_path, False) == tmp_path / "replaced" / "a-2"


def left_again(folder):
    run = SimpleNamespace(name="a", algorithm="grpo", source=None)
    return SimpleNamespace(run=run, directory=folder / "a", recipe=parse_recipe(RECIPE))


def test_a_missing_directory_needs_no_room(tmp_path):
    assert make_room(left_again(tmp_path), tmp_path, False) is None


@pytest.mark.parametrize(
    ("changes", "finished", "why"),
    [
        ({"status": "finished"}, True, "finished"),
        ({"status": "running"}, False, "cut off"),
        ({"status": "failed"}, False, "failed"),
        ({"status": "finished", "recipe": {"run": {"seed": 5}}}, False, "finished, but its recipe changed"),
        # where it writes does not make it another run
        ({"status": "finished", "recipe": {**RECIPE, "run": {"seed": 4, "dir": "/x"}}}, True, "finished"),
    ],
)
def test_states(tmp_path, changes, finished, why):
    found = states([left(tmp_path, "grpo", **changes)], {})["a"]
    assert (found.finished, found.why) == (finished, why)


def test_a_recipe_of_another_version_is_another_recipe(tmp_path):
    run = left(tmp_path, "grpo", status="finished")
    (run.directory / "recipe.yaml").write_text("no_such_section: 1\n")
    assert states([run], {})["a"].why == "finished, but its recipe changed"


def test_broken_files_are_told(tmp_path):
    (tmp_path / RECORD).write_text("{")
    with pytest.raises(RecipeError, match="study.json is not valid JSON"):
        read_record(tmp_path)
    run = left(tmp_path, "grpo")
    (run.directory / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="manifest.json"):
        states([run], {})


def test_a_run_that_a_killed_study_left_behind_still_holds_the_lock(tmp_path):
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
        child = Child(sleep, tmp_path / "a.log", 1, keep=(lock.fileno(),))
    try:
        with (tmp_path / ".lock").open("w") as again, pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        stop([child])
    with (tmp_path / ".lock").open("w") as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
