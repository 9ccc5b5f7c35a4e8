"""Trackers get grouped names and evaluations; read back from the files that they really write."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys

import pytest
from launching import ROOT, environment

from trlmath.training.trackers import DEFAULT, reporters

SMALL = [
    "trainer.max_steps=2",
    "rollout.prompts_per_step=4",
    "rollout.group_size=4",
    "evaluation.limit=8",
    "evaluation.every=1",
    "evaluation.settings=[{name: sampled}]",
]


def needs(name):
    return pytest.mark.skipif(importlib.util.find_spec(name) is None, reason=f"{name} is not installed")


def run(directory, tracker, **variables):
    code = ["recipes/grpo.py", *SMALL, f"run.dir={directory}"]
    code += [f"run.report_to={tracker}"] if tracker else []
    done = subprocess.run(
        [sys.executable, *code], cwd=ROOT, env={**environment(), **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def expected(directory):
    """metric -> [(step, value)] as metrics.jsonl has them."""
    found = {}
    for line in (directory / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        for name, value in row.items():
            if name != "step" and value is not None and not name.startswith("memory/"):
                found.setdefault(name, []).append((row["step"], value))
    return found


def test_who_is_told():
    assert reporters([]) == reporters(["none"]) == []
    assert reporters(["wandb", "none"]) == ["wandb"]
    installed = importlib.util.find_spec("tensorboard") is not None
    assert reporters(None) == ([DEFAULT] if installed else [])


@pytest.mark.slow
@needs("tensorboard")
def test_tensorboard_by_default(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = tmp_path / "run"
    run(directory, None)
    events = EventAccumulator(str(directory / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {tag.split("/")[0] for tag in tags} == {"train", "eval", "time", "memory"}
    for name, told in expected(directory).items():
        seen = [(event.step, event.value) for event in events.Scalars(name)]
        assert [step for step, _ in seen] == [step for step, _ in told], name
        assert [value for _, value in seen] == pytest.approx([value for _, value in told], rel=1e-5), name
    assert [event.step for event in events.Scalars("eval/both")] == [0, 1, 2]


def wandb_records(data):
    """The records of a .wandb file: LevelDB's log format behind a header of seven bytes."""
    place, whole = 7, b""
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:  # no room for a record's head: the block's end is padding
            place += left
            continue
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield whole
            whole = b""


@pytest.mark.slow
@needs("wandb")
def test_wandb_offline(tmp_path):
    from wandb.proto import wandb_internal_pb2

    directory = tmp_path / "run"
    run(directory, "wandb", WANDB_MODE="offline", WANDB_SILENT="true")
    (file,) = directory.glob("wandb/offline-run-*/*.wandb")
    rows, names = [], []
    for data in wandb_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            rows.append({"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items})
        elif record.WhichOneof("record_type") == "run":
            names.append((record.run.project, record.run.display_name))
    assert names[0] == ("trlmath", "run")
    for name, told in expected(directory).items():
        seen = [(row["train/global_step"], row[name]) for row in rows if name in row]
        assert seen == [(step, pytest.approx(value)) for step, value in told], name
    assert not [name for row in rows for name in row if name.startswith("train/time")]


@pytest.mark.slow
@needs("trackio")
def test_trackios_own_store(tmp_path):
    directory = tmp_path / "run"
    run(directory, "trackio", TRACKIO_DIR=str(tmp_path / "store"), HF_HUB_OFFLINE="1")
    (file,) = (tmp_path / "store").glob("trlmath*.db")
    with sqlite3.connect(file) as store:
        told = store.execute("select run_name, metrics from metrics").fetchall()
    assert {name for name, _ in told} == {"run"}
    rows = [json.loads(text) for _, text in told]
    both = [(row["train/global_step"], row["eval/both"]) for row in rows if "eval/both" in row]
    assert both == expected(directory)["eval/both"]
    assert {name.split("/")[0] for row in rows for name in row} >= {"train", "eval", "time", "memory"}
    assert os.path.getsize(file) > 0
