"""Who writes to a run directory: one process, known by name; and whoever reads sees when it is gone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import pytest
from click.testing import CliRunner
from run_files import make_run

from trlmath.cli import cli
from trlmath.errors import RecipeError
from trlmath.reports.page import render
from trlmath.runs.lock import RunLock, open_locked, writer_of
from trlmath.runs.read import read_run

HOLD = """
import sys, time
from pathlib import Path
from trlmath.runs.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def held(tmp_path):
    """A run that a process of its own holds, and that process."""
    run = make_run(tmp_path / "run", steps=2, status="running")
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(run)], stdout=subprocess.PIPE)
    assert process.stdout.readline()
    yield run, process
    process.kill()
    process.wait()


def listed(folder):
    done = CliRunner().invoke(cli, ["runs", "list", str(folder), "--json"])
    return [row["status"] for row in json.loads(done.output)]


def test_a_run_whose_process_was_killed_is_not_running(held):
    run, process = held
    assert (writer_of(run), read_run(run).status, listed(run.parent)) == ("alive", "running", ["running"])
    process.kill()
    process.wait()
    assert (writer_of(run), read_run(run).status, listed(run.parent)) == ("gone", "killed", ["killed"])
    assert "killed" in CliRunner().invoke(cli, ["runs", "show", str(run)]).output
    assert 'class="status killed"' in render([read_run(run)])
    # going on makes it a running one again; one that ended is what it says
    with ExitStack() as stack:
        open_locked(run, True, stack)
        assert read_run(run).status == "running"
    (run / "manifest.json").write_text('{"status": "failed"}')
    assert read_run(run).status == "failed"


def test_a_run_of_another_host_is_not_judged(held):
    run, process = held
    process.kill()
    process.wait()
    (run / ".lock").write_text(json.dumps({"pid": 1, "host": f"not-{socket.gethostname()}"}))
    assert (writer_of(run), read_run(run).status) == ("unknown", "running")
    for text in ("", "{", "[]", "null"):
        (run / ".lock").write_text(text)
        assert writer_of(run) == "unknown"
    (run / ".lock").unlink()
    assert (writer_of(run), read_run(run).status) == ("unknown", "running")


def test_whoever_looks_is_never_in_the_way_of_a_writer(tmp_path):
    RunLock(tmp_path).release()
    done = threading.Event()

    def look():
        while not done.is_set():
            writer_of(tmp_path)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(200):
            RunLock(tmp_path).release()
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_refused_start_lets_go(tmp_path):
    run = make_run(tmp_path / "run", steps=1)
    with ExitStack() as stack, pytest.raises(RecipeError, match="already holds a run"):
        open_locked(run, False, stack)
    RunLock(run).release()


def test_what_a_kill_left_half_written_goes(tmp_path):
    run = make_run(tmp_path / "run", steps=1, status="running")
    left = [
        ".manifest.json.123",
        ".recipe.yaml.4",
        "rollouts/step-000003.tmp",
        "evaluation/.samples.jsonl.resume",
    ]
    for name in left:
        (run / name).write_text("half")
    before = sorted(p for p in run.rglob("*") if str(p.relative_to(run)) not in left)
    with ExitStack() as stack:
        open_locked(run, True, stack)
    assert sorted(p for p in run.rglob("*") if p.name != ".lock") == before
