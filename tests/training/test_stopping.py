"""A run asked to stop where an evaluation is due saves first; going on, it evaluates and ends alike."""

from __future__ import annotations

import hashlib
import json
import signal

import pytest

from trlmath.evaluation import run as evaluation
from trlmath.recipe import load_recipe
from trlmath.training.grpo_run import GrpoRun
from trlmath.training.health_callback import HealthCheck
from trlmath.training.sft_run import SftRun

SMALL = [
    "evaluation.every=2",
    "evaluation.limit=4",
    "evaluation.chunk=2",
    "sampling.max_tokens=12",
    "checks.preflight=false",
    "run.report=false",
    "run.checkpoint_every=50",
    "run.report_to=none",
]
GRPO = ["trainer.max_steps=3", "rollout.prompts_per_step=2", "rollout.group_size=4"]
SFT = [
    "trainer.max_steps=6",
    "data.train_size=64",
    "batch.size=4",
    "averaging={kind: ema, decay: 0.5}",
    "early_stop={metric: eval/both, patience: 2, min_delta: 2}",
]
pytestmark = pytest.mark.slow
# chunks a whole evaluation: 2 for each of the settings, sampled and greedy
EACH = 4


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Do what a recipe does in this process; with `stop`, SIGTERM comes there. How many chunks were drawn."""

    def of(kind, recipe, name, stop=None):
        drawn, steps, chunk, original = [], [], evaluation._chunk, HealthCheck.on_step_begin

        def counted(*arguments):
            drawn.append(arguments[2])
            if stop == ("chunk", len(drawn)):
                signal.raise_signal(signal.SIGTERM)
            return chunk(*arguments)

        def begun(self, args, state, control, **rest):
            steps.append(state.global_step)
            if stop == ("step", len(steps)):
                signal.raise_signal(signal.SIGTERM)
            return original(self, args, state, control, **rest)

        more = GRPO if kind is GrpoRun else SFT
        given = load_recipe(recipe, [*SMALL, *more, f"run.dir={tmp_path / name}"])
        with monkeypatch.context() as patch:
            patch.setattr(evaluation, "_chunk", counted)
            patch.setattr(HealthCheck, "on_step_begin", begun)
            with kind(given) as training:
                before = training.evaluate("before")
                training.train()
                training.finish(before, training.evaluate("after"))
        return drawn, steps

    return of


def told(directory, final=True):
    """What a run has computed, apart from how long it took."""
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    rows = [{k: v for k, v in row.items() if not k.startswith(("time/", "memory/"))} for row in rows]
    names = ("evaluation/samples.jsonl", "checkpoints/final/model.safetensors") if final else ()
    return rows, [hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in names]


def checkpoints(directory):
    return sorted(p.name for p in (directory / "checkpoints").glob("checkpoint-*"))


def test_a_stop_in_a_step_leaves_the_evaluation_that_is_due_after_it(run, tmp_path):
    whole = run(GrpoRun, "nano/grpo", "whole")
    with pytest.raises(KeyboardInterrupt):
        run(GrpoRun, "nano/grpo", "broken", ("step", 2))
    broken = tmp_path / "broken"
    assert checkpoints(broken) == ["checkpoint-2"]
    assert [row["step"] for row in told(broken, final=False)[0] if "eval/both" in row] == [0]
    drawn, steps = run(GrpoRun, "nano/grpo", "broken")
    assert (drawn, steps) == (whole[0][EACH:], whole[1][2:])
    assert told(broken) == told(tmp_path / "whole")


def test_a_stop_in_an_evaluation_leaves_what_is_not_drawn(run, tmp_path):
    whole = run(SftRun, "nano/sft", "whole")
    assert len(whole[1]) == 4  # it stops early
    broken, rows = tmp_path / "broken", 2 * EACH  # of the evaluation before training
    # in the first setting's first chunk; in the second setting of the evaluation that will end it early
    for step, chunk, more in ((2, EACH + 1, 1), (4, 3 + 3, 3 + 3)):
        with pytest.raises(KeyboardInterrupt):
            run(SftRun, "nano/sft", "broken", ("chunk", chunk))
        rows += 2 * more
        assert checkpoints(broken)[-1] == f"checkpoint-{step}"
        assert len((broken / "evaluation" / "samples.jsonl").read_text().splitlines()) == rows
    drawn, steps = run(SftRun, "nano/sft", "broken")
    assert (len(drawn), steps) == (1 + EACH, [])
    assert told(broken) == told(tmp_path / "whole")
