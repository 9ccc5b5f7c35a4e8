"""A whole study with scripts that only pretend: what runs, what is kept, what is told, and interruptions."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trlmath.errors import RecipeError
from trlmath.studies import children
from trlmath.studies.study import Study

FAKE = Path(__file__).with_name("fake_script.py")
_spec = importlib.util.spec_from_file_location("fake_script", FAKE)
fake_script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake_script)
LAUNCHER = f"{{python}} {FAKE} {{script}} {{arguments}}"
SETTINGS = {"settings": [{"name": "sampled"}], "limit": 10}
ROAD = [
    {"name": "zero", "algorithm": "evaluate", "recipe": "nano/evaluate", "set": {"sampling.top_p": 0.9}},
    {"name": "a", "algorithm": "grpo", "recipe": "nano/grpo"},
    {"name": "b", "algorithm": "grpo", "recipe": "nano/grpo", "set": {"model.path": "run:a"}},
    {"name": "c", "algorithm": "grpo", "recipe": "nano/grpo", "set": {"model.path": "run:b"}},
    {"name": "d", "algorithm": "grpo", "recipe": "nano/grpo", "seeds": [0, 1, 3]},
]


class Notes:
    """Keeps what a study says."""

    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)

    def running(self, lines):
        pass


class Pretended:
    """Stands for a process: the fake script runs here and now, since many processes are slow."""

    def __init__(self, command, stdout, env, **_):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            self.status = fake_script.main(command[2:])
        stdout.write(text.getvalue().encode())
        self.env = env

    def poll(self):
        return self.status


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to be in."""
    monkeypatch.setenv("FAKE_STARTS", str(tmp_path / "starts"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pretend(monkeypatch):
    """No processes: runs happen when they are started."""
    started = []

    def popen(*arguments, **keys):
        started.append(Pretended(*arguments, **keys))
        return started[-1]

    monkeypatch.setattr(children.subprocess, "Popen", popen)
    return started


def write(folder, runs, **keys):
    file = folder / "road.yaml"
    file.write_text(
        json.dumps({"runs": runs, "evaluation": SETTINGS, "launcher": LAUNCHER, **keys}, indent=1)
    )
    return file


def go(file, *overrides, jobs=1):
    """Run the study; returns (study, what it said, the runs that were started)."""
    starts = Path(os.environ["FAKE_STARTS"])
    starts.write_text("")
    study, notes = Study(file, overrides), Notes()
    study.run(notes, jobs)
    return study, "\n".join(notes.lines), [line.split()[0] for line in starts.read_text().splitlines()]


def test_everything_runs_once_and_only_once(place, pretend):
    file = write(place, ROAD)
    study, said, started = go(file)
    assert started == ["zero", "a", "b", "c", "d-seed0", "d-seed1", "d-seed3"]
    assert study.failed == []
    assert "finished c in" in said
    assert (study.directory / "b" / "recipe.yaml").read_text().count(
        f"{study.directory}/a/checkpoints/final"
    ) == 1
    again, _, started = go(file)
    assert started == []
    assert {row.status for row in again.tables()["sampled"]} == {"finished"}


def test_the_table_has_rates_means_over_seeds_and_differences(place, pretend):
    study, _, _ = go(write(place, ROAD))
    zero, a, *_, d = study.tables()["sampled"]
    assert (zero.measured.rates["both"].value, zero.difference) == (0.3, None)
    assert (a.measured.rates["both"].value, a.measured.problems) == (0.4, 10)
    assert a.difference.value == pytest.approx(0.1)
    assert a.difference.low < 0.1 < a.difference.high
    assert "Newcombe" in a.paired
    # seeds 0, 1, 3 solve 4, 5, 7 of 10: mean 16/3, Student t(2) = 4.3027
    assert (d.runs, d.of) == (3, 3)
    assert d.measured.rates["both"].value == pytest.approx(16 / 30)
    half = 4.3027 * (0.07 / 3) ** 0.5 / 3**0.5
    assert d.measured.rates["both"].low == pytest.approx(max(0, 16 / 30 - half), abs=1e-3)
    assert d.difference.value == pytest.approx(16 / 30 - 0.3)
    assert d.measured.entropy == pytest.approx(0.2)
    record = json.loads((study.directory / "study.json").read_text())
    assert record["runs"]["b"]["source"] == "a"
    assert record["tables"]["sampled"][1]["difference"]["value"] == pytest.approx(0.1)


def test_a_run_may_be_compared_with_another_than_the_baseline(place, pretend):
    runs = [*ROAD[:2], {**ROAD[2], "against": "a", "seeds": [1]}]
    study, _, _ = go(write(place, runs))
    zero, a, b = study.tables()["sampled"]
    assert (zero.against, a.against, b.against) == (None, "zero", "a")
    assert b.difference.value == pytest.approx(0.1)
    assert "Newcombe" in b.paired, "a single seed is a single run"


def test_a_failed_run_is_told_its_dependents_are_skipped_and_tried_again_later(place, pretend, monkeypatch):
    file = write(place, ROAD)
    monkeypatch.setenv("FAKE_FAIL", "a")
    study, said, started = go(file)
    assert started == ["zero", "a", "d-seed0", "d-seed1", "d-seed3"]
    assert study.failed == ["a", "b", "c"]
    assert "failed   a: exit status 1" in said
    assert "    error: this run was told to fail" in said
    assert "skipped  c: it starts from b" in said
    assert {row.name: row.status for row in study.tables()["sampled"]} == {
        "zero": "finished", "a": "failed", "b": "skipped", "c": "skipped", "d": "finished"
    }  # fmt: skip
    monkeypatch.delenv("FAKE_FAIL")
    study, said, started = go(file)
    assert started == ["a", "b", "c"]
    assert f"moved    what was in {study.directory / 'a'} to {study.directory / 'replaced' / 'a-1'}" in said


def test_a_changed_recipe_runs_again_with_all_that_starts_from_it(place, pretend):
    file = write(place, ROAD)
    go(file)
    study, _, started = go(file, "a:rollout.microbatch_tokens=77")
    assert started == ["a", "b", "c"]
    assert (study.directory / "replaced" / "c-1" / "manifest.json").is_file()
    # somebody else trains `a` anew: what started from the old one is not its result
    (study.directory / "a" / "checkpoints" / "final" / "model.safetensors").write_bytes(os.urandom(64))
    _, _, started = go(file, "a:rollout.microbatch_tokens=77")
    assert started == ["b", "c"]


def test_two_at_once_share_the_cores(place, pretend, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    file = write(place, ROAD)
    study, _, started = go(file, jobs=2)
    assert sorted(started) == sorted(study.states)
    assert {run.env["OMP_NUM_THREADS"] for run in pretend} == {"2"}


def test_a_launcher_that_only_queues_has_not_run(place):
    file = write(place, [ROAD[1]], launcher="{python} -c 0 {command}")
    study, said, _ = go(file)
    assert study.failed == ["a"]
    assert "ended without finishing its run" in said


def test_every_wrong_recipe_is_told_before_anything_starts(place):
    runs = [
        *ROAD,
        {"name": "x", "algorithm": "gppo", "recipe": "nano/grpo"},
        {"name": "y", "algorithm": "grpo", "recipe": "nano/grop"},
        {"name": "z", "algorithm": "grpo", "recipe": "nano/grpo", "set": {"trainer.learning_rat": 1}},
        {"name": "v", "algorithm": "grpo", "recipe": "nano/grpo", "set": {"advantage": "gruop"}},
        {"name": "u", "algorithm": "grpo", "recipe": "nano/grpo", "set": {"evaluation.enabled": False}},
        {"name": "t", "algorithm": "grpo", "recipe": "nano/grpo", "set": {"model.path": "run:z"}},
    ]
    with pytest.raises(RecipeError) as caught:
        Study(write(place, runs))
    text = str(caught.value)
    for piece in (
        "run 'x': algorithm: got 'gppo'",
        "Did you mean 'nano/grpo'",
        "run 'z': trainer.learning_rat",
        "Did you mean 'group'",
        "run 'u': evaluation.enabled is false",
    ):
        assert piece in text
    assert "run 't'" not in text, "told once its source is right"
    assert not (place / "runs").exists()


def test_a_baseline_and_a_setting_that_are_not_there(place):
    with pytest.raises(RecipeError, match="Did you mean 'zero'"):
        Study(write(place, ROAD, baseline="zer"))
    with pytest.raises(RecipeError, match="b: against.*Did you mean 'zero'"):
        Study(write(place, [*ROAD[:2], {**ROAD[2], "against": "zeo"}]))
    with pytest.raises(RecipeError, match="compare.setting: 'samled' is none.*Did you mean 'sampled'"):
        Study(write(place, ROAD, compare={"setting": "samled"}))


def test_copied_recipes_beside_the_study_are_the_ones_that_run(place):
    from trlmath.recipe import shipped_recipes

    (place / "nano").mkdir()
    (place / "nano" / "grpo.yaml").write_text(shipped_recipes()["nano/grpo"].read_text())
    study = Study(write(place, ROAD))
    assert {run.config for run in study.runs if run.run.algorithm == "grpo"} == {place / "nano" / "grpo.yaml"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_the_runs_and_the_same_command_goes_on(place, number):
    file = write(place, ROAD)
    environment = {**os.environ, "FAKE_HANG": "a d-seed0"}
    command = [sys.executable, "-m", "trlmath", "study", str(file), "--jobs", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    logs = place / "runs" / f"{place.name}-road" / "logs"
    until = time.monotonic() + 60
    while not all(
        (logs / f"{n}.log").exists() and "hanging" in (logs / f"{n}.log").read_text()
        for n in ("a", "d-seed0")
    ):
        assert time.monotonic() < until, process.communicate(timeout=5)
        time.sleep(0.05)
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert "zero" in out.split("held-out problems")[1]
    root = logs.parent
    for name in ("a", "d-seed0"):
        assert json.loads((root / name / "manifest.json").read_text())["status"] == "interrupted"
    record = json.loads((root / "study.json").read_text())
    assert {name: run["status"] for name, run in record["runs"].items()} == {
        "zero": "finished", "a": "interrupted", "b": "not run", "c": "not run",
        "d-seed0": "interrupted", "d-seed1": "not run", "d-seed3": "not run",
    }  # fmt: skip
    assert [name for name, state in Study(file).states.items() if state.finished] == ["zero"]


def test_two_processes_do_not_run_one_study(place):
    import fcntl

    study = Study(write(place, ROAD))
    study.directory.mkdir(parents=True)
    with (study.directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(RecipeError, match="another process is running this study"):
            study.run(Notes())
