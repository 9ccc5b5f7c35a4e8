"""Which changes, of a recipe and of what else a run is made of, make it another run."""

from __future__ import annotations

import copy
import json
import os

import pytest

from trlmath.errors import RecipeError
from trlmath.recipe import parse_recipe
from trlmath.runs.lock import RunLock
from trlmath.training.resume import changes, find_unfinished
from trlmath.training.same_run import compare, in_words


def test_another_address_or_deadline_is_the_same_run_and_another_engine_is_not(tmp_path):
    server = {"mode": "server", "url": "http://a:1", "request_timeout": 5}
    (tmp_path / "recipe.yaml").write_text(parse_recipe({"sampling": server}).to_yaml())
    moved = {"mode": "server", "url": ["http://b:2", "http://c:3"], "weights_dir": "/shared/w"}
    assert changes(tmp_path, parse_recipe({"sampling": moved})) == []
    told = changes(tmp_path, parse_recipe({"sampling": {"engine": "transformers"}}))
    assert told == [
        "sampling.engine was 'auto', is 'transformers'",
        "sampling.mode was 'server', is 'colocate'",
    ]


def test_auto_passes_over_a_run_that_goes_on_and_says_so(tmp_path):
    recipe = parse_recipe({"run": {"resume": "auto"}})
    older, newer = tmp_path / f"{recipe.name}-1", tmp_path / f"{recipe.name}-2"
    for age, folder in enumerate((newer, older)):
        folder.mkdir()
        (folder / "recipe.yaml").write_text(recipe.to_yaml())
        (folder / "manifest.json").write_text('{"status": "running"}')
        RunLock(folder).release()
        os.utime(folder, (1000 - age, 1000 - age))
    told = []
    assert find_unfinished(recipe, tmp_path / "new", told.append) == newer
    lock = RunLock(newer)
    os.utime(newer, (1000, 1000))
    assert told == []
    assert find_unfinished(recipe, tmp_path / "new", told.append) == older
    lock.release()
    assert told == [f"resume   {newer} is passed over: it still runs"]


MANIFEST = {
    "processes": 2,
    "data": {"train": {"sha256": "a" * 64}, "eval": {"sha256": "b" * 64}},
    "packages": {"torch": "2.13.0", "trl": "1.16.0"},
    "variables": {},
    "engine": {"name": "vllm", "why": "it is installed"},
    "components": {"rewards": [{"name": "mine", "version": "1.0", "sha256": None}]},
}


@pytest.fixture
def compared(tmp_path):
    """Compare `MANIFEST` with what `change` makes of it."""

    def run(change, begun=True, engine="vllm"):
        (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
        now = copy.deepcopy(MANIFEST)
        change(now)
        return [in_words(change) for change in compare(tmp_path, now, engine, begun)[0]]

    return run


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda now: now.update(processes=1), r"the number of processes \(2, now 1\)"),
        (lambda now: now["data"]["train"].update(sha256="c" * 64), r"to train on \(a{12}, now c{12}\)"),
        (lambda now: now["data"]["eval"].update(sha256="c" * 64), r"held out \(b{12}, now c{12}\)"),
    ],
)
def test_other_data_or_processes_are_another_run_once_it_has_begun(compared, change, told):
    with pytest.raises(RecipeError, match=told):
        compared(change)
    assert len(compared(change, begun=False)) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda now: None, []),
        (lambda now: now["packages"].update(torch="2.14.0"), ["torch (2.13.0, now 2.14.0)"]),
        (lambda now: now["packages"].pop("trl"), ["trl (1.16.0, now none)"]),
        (lambda now: now["variables"].update(OMP_NUM_THREADS="4"), ["OMP_NUM_THREADS (none, now 4)"]),
        (lambda now: now["components"]["rewards"][0].update(version="1.1"), ["rewards mine (1.0, now 1.1)"]),
    ],
)
def test_other_versions_and_parts_are_told(compared, change, told):
    assert compared(change) == told


def test_another_engine_that_auto_takes_is_told(compared):
    assert compared(lambda now: None, engine="transformers") == ["the engine (vllm, now transformers)"]
