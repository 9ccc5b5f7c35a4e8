"""What a run logs and shows when not every step is logged."""

from __future__ import annotations

import json

from trlmath.evaluation.display import Unwatched
from trlmath.runs.directory import RunDirectory
from trlmath.training.observer import RunObserver


class Watching(Unwatched):
    """Keeps what it is told."""

    def __init__(self):
        self.shown, self.seen = [], []

    def advance(self, count=1, **numbers):
        self.shown.append(numbers)

    def metrics(self, numbers):
        self.seen.append(numbers)


def test_the_last_step_is_logged_and_an_old_number_says_whose_it_is(make_trainer, tmp_path):
    watch = Watching()
    shown, files = watch.shown, RunDirectory(tmp_path / "run")
    trainer = make_trainer(max_steps=3, logging_steps=2)
    trainer.add_callback(RunObserver(files, watch))
    trainer.train()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 3]
    assert all(row["train/rollouts"] == 8 for row in rows)
    for row in rows:
        assert sum(v for name, v in row.items() if name.startswith("train/category/")) == 1.0
    assert "reward" not in shown[0]
    assert "step" not in shown[1]
    assert "step" not in shown[2]
    assert shown[1]["reward"] == rows[0]["train/reward"]


def test_between_two_logs_the_bar_names_the_step():
    class State:
        global_step, max_steps = 3, 9

    watch = Watching()
    observer = RunObserver(None, watch)
    observer.on_log(None, State, None, {"reward": 0.5})
    State.global_step = 4
    observer.on_step_begin(None, State, None)
    assert watch.shown == [{"step": "3", "reward": 0.5}]
    assert watch.seen[0]["train/reward"] == 0.5
