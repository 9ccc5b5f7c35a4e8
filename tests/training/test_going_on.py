"""SFT runs in process, evaluations made up: where a killed one goes on, and which checkpoints stay."""

from __future__ import annotations

from collections import defaultdict

import pytest

from trlmath.recipe import load_recipe
from trlmath.training.run_base import TrainingRun
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
        with pytest.raises(Killed), SftRun(recipe) as run:
            run.evaluate("before")
            run.train()
            raise Killed
        return run

    return train


def test_a_run_that_had_stopped_early_does_not_train_on(trained):
    settings = ["early_stop.patience=1", "run.checkpoint_every=2"]
    first = trained({0: 0.5, 2: 0.6, 4: 0.6}, *settings)
    again = trained({0: 0.5, 2: 0.6, 4: 0.6}, *settings)
    assert (first.step, again.continued.step, again.step) == (4, 4, 4)
    for name, tensor in first.trainer.model.state_dict().items():
        assert tensor.equal(again.trainer.model.state_dict()[name]), name
