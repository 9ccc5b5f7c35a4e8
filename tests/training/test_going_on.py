"""SFT runs in process, evaluations made up: where a killed one goes on, and which checkpoints stay."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from trlmath.errors import RecipeError
from trlmath.recipe import load_recipe
from trlmath.training.run_base import TrainingRun
from trlmath.training.same_run import in_words
from trlmath.training.sft_run import SftRun

SMALL = [
    "data.train_size=64",
    "batch.size=4",
    "evaluation.every=2",
    "evaluation.settings=[{name: sampled}]",
    "sampling.max_tokens=8",
    "checks.preflight=false",
    "run.report=false",
    "trainer.max_steps=6",
]


class Killed(Exception):
    """What ends a run here."""


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Start, or go on with, the run in `tmp_path` and return it, killed once it has trained."""

    def train(values, *overrides):
        def evaluate(run, when):
            run.numbers = {"eval/both": defaultdict(float, values)[run.step]}
            return [when]

        monkeypatch.setattr(TrainingRun, "evaluate", evaluate)
        recipe = load_recipe("nano/sft", [*SMALL, f"run.dir={tmp_path / 'run'}", *overrides])
        run = SftRun(recipe)
        with pytest.raises(Killed), run:
            kill_when_trained(run)
        return run

    def kill_when_trained(run):
        run.evaluate("before")
        run.train()
        raise Killed

    return train


def test_a_run_that_had_stopped_early_does_not_train_on(trained):
    settings = ["early_stop.patience=1", "run.checkpoint_every=2"]
    first = trained({0: 0.5, 2: 0.6, 4: 0.6}, *settings)
    again = trained({0: 0.5, 2: 0.6, 4: 0.6}, *settings)
    assert (first.step, again.continued.step, again.step) == (4, 4, 4)
    for name, tensor in first.trainer.model.state_dict().items():
        assert tensor.equal(again.trainer.model.state_dict()[name]), name


def test_other_problems_are_refused_and_another_reward_is_told_and_recorded(trained, tmp_path):
    reward, problems = tmp_path / "mine.py", tmp_path / "problems.jsonl"

    def write(code, off):
        reward.write_text(f"def mine(*, completions, **_):\n    return [{code}] * len(completions)\n")
        rows = [
            {"question": f"{i}+{off}=?", "answer": str(i + off), "trace": f"{i + off}"} for i in range(32)
        ]
        problems.write_text("".join(json.dumps(row) + "\n" for row in rows))

    settings = [
        f"data.train={problems}",
        f"rewards=[{reward}:mine]",
        "run.checkpoint_every=3",
        "data.train_size=null",
    ]
    write("0.0", 1)
    trained({}, *settings)
    manifest = tmp_path / "run" / "manifest.json"
    before = manifest.read_bytes()
    write("0.0", 1000)
    with pytest.raises(
        RecipeError, match=r"cannot go on: the problems to train on \(\w{12}, now \w{12}\).*run.dir"
    ):
        trained({}, *settings)
    assert manifest.read_bytes() == before
    write("1.0", 1)
    again = trained({}, *settings)
    told = json.loads(manifest.read_text())
    [resumed] = told["resumed"]
    # somebody may commit meanwhile
    [change] = [change for change in resumed["changed"] if "commit" not in change["what"]]
    assert (resumed["step"], change["what"]) == (6, f"rewards {reward}:mine")
    assert change["is"]["sha256"] == told["components"]["rewards"][0]["sha256"] != change["was"]["sha256"]
    copies = {file.read_text() for file in (tmp_path / "run" / "components").iterdir()}
    assert {"[0.0]" in code for code in copies} == {True, False}
    assert f"resume   changed: {in_words(change)}" in again._changed


def test_the_best_checkpoint_stays_also_where_none_was_due(trained, tmp_path):
    settings = ["run.keep_best=eval/both", "run.keep_last=1", "run.checkpoint_every=3"]
    trained({0: 0.9, 2: 0.6, 4: 0.5}, *settings)
    kept = {path.name for path in (tmp_path / "run" / "checkpoints").glob("checkpoint-*")}
    assert kept == {"checkpoint-2", "checkpoint-6"}
