"""Checkpoints: a kill, a cut file, a flipped byte or a lost file never make a bad one count as good."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from trlmath.errors import DataError, RecipeError
from trlmath.runs import appended, checkpoints
from trlmath.runs.lock import RunLock


def make(folder: Path, step: int, text: str = "weights") -> Path:
    beside = folder / ".saving"
    shutil.rmtree(beside, ignore_errors=True)
    (beside / "inner").mkdir(parents=True)
    (beside / "model.safetensors").write_text(text * 100)
    (beside / "inner" / "rng.pth").write_text(f"rng {step:3}")
    target = folder / f"{checkpoints.PREFIX}{step}"
    checkpoints.publish(beside, target, {"step": step, "rows": {"metrics.jsonl": 3}})
    return target


def test_the_newest_that_verifies_is_taken_with_what_was_noted(tmp_path):
    make(tmp_path, 5)
    make(tmp_path, 10)
    found, passed = checkpoints.newest(tmp_path)
    assert (found.step, found.path.name, passed) == (10, "checkpoint-10", [])
    assert found.facts["rows"] == {"metrics.jsonl": 3}
    assert checkpoints.newest(tmp_path / "none") == (None, [])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda p: (p / "model.safetensors").write_text("w"), "bytes and had"),
        (lambda p: (p / "model.safetensors").write_text("WEIGHTS" * 100), "its hash differs"),
        (lambda p: (p / "inner" / "rng.pth").unlink(), "inner/rng.pth is missing"),
        (lambda p: (p / "files.json").unlink(), "saving it did not end"),
        (lambda p: (p / "files.json").write_text("{"), "cannot be read"),
        (lambda p: (p / "files.json").write_text("[]"), "cannot be read"),
    ],
)
def test_a_spoiled_one_is_passed_over_and_said(tmp_path, spoil, why):
    make(tmp_path, 5)
    spoil(make(tmp_path, 10))
    found, (said,) = checkpoints.newest(tmp_path)
    assert found.step == 5
    assert said.startswith("checkpoint-10 is passed over: ")
    assert why in said


def test_a_broken_one_of_the_same_step_is_replaced(tmp_path):
    (make(tmp_path, 5) / "files.json").unlink()
    make(tmp_path, 5, "again")
    assert checkpoints.newest(tmp_path)[0].step == 5


def test_pruning_keeps_the_last_and_the_best(tmp_path):
    for step in (1, 2, 3, 4):
        make(tmp_path, step)
    (tmp_path / "final").mkdir()
    checkpoints.prune(tmp_path, 4, keep_last=2, best="checkpoint-1")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "checkpoint-1",
        "checkpoint-3",
        "checkpoint-4",
        "final",
    ]


def test_a_damaged_one_of_a_later_step_does_not_push_out_the_one_just_saved(tmp_path):
    make(tmp_path, 2)
    (make(tmp_path, 4) / "model.safetensors").unlink()
    make(tmp_path, 3)  # the run went on from 2, and was stopped after 3
    checkpoints.prune(tmp_path, 3, keep_last=1)
    found, passed = checkpoints.newest(tmp_path)
    assert (found.step, passed) == (3, [])
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint-3"]


# name -> how a file of a checkpoint may be damaged
DAMAGE = {
    "one bit": lambda path: _flip(path, len(path.read_bytes()) // 2),
    "first bit": lambda path: _flip(path, 0),
    "last bit": lambda path: _flip(path, len(path.read_bytes()) - 1),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-2]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b" x"),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(len(path.read_bytes()))),
    "missing": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "of another step": lambda path: path.write_bytes(
        Path(str(path).replace("checkpoint-10", "checkpoint-5")).read_bytes()
    ),
}


def _flip(path, place):
    held = bytearray(path.read_bytes())
    held[place] ^= 4
    path.write_bytes(held)


@pytest.mark.parametrize("name", ["model.safetensors", "inner/rng.pth", "files.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_every_damage_to_every_file_is_recognised(tmp_path, name, damage):
    make(tmp_path, 5, "WEIGHTS")
    DAMAGE[damage](make(tmp_path, 10) / name)
    found, (said,) = checkpoints.newest(tmp_path)
    assert found.step == 5
    assert said.startswith("checkpoint-10 is passed over: ")


def test_a_changed_note_or_a_further_file_is_recognised(tmp_path):
    make(tmp_path, 5)
    seal = make(tmp_path, 10) / "files.json"
    told = seal.read_text()
    seal.write_text(told.replace('"metrics.jsonl": 3', '"metrics.jsonl": 4'))
    assert "files.json is not what was written" in checkpoints.newest(tmp_path)[1][0]
    seal.write_text(told)
    assert checkpoints.newest(tmp_path)[0].step == 10
    assert checkpoints.verify(seal.parent.rename(tmp_path / "checkpoint-11"))[0] is None
    (tmp_path / "checkpoint-11").rename(seal.parent)
    (seal.parent / "pytorch_model.bin").write_text("other weights")
    assert "pytorch_model.bin was not there when it was saved" in checkpoints.newest(tmp_path)[1][0]


def test_where_none_is_whole_the_run_does_not_silently_begin_anew(tmp_path):
    assert checkpoints.to_continue(tmp_path) == (None, [])
    for step in (5, 10):
        (make(tmp_path, step) / "model.safetensors").unlink()
    with pytest.raises(
        DataError, match="checkpoint-10 is passed over.*checkpoint-5 is.*to start this run from its"
    ):
        checkpoints.to_continue(tmp_path)
    shutil.rmtree(tmp_path / "checkpoint-10")
    make(tmp_path, 10)
    assert checkpoints.to_continue(tmp_path)[0].step == 10


def test_killed_at_every_single_file_operation_of_a_save(tmp_path):
    """The n-th open, rename, mkdir or removal of the save is the process's last act, for every n."""
    before = tmp_path / "before"
    for step in (1, 2):
        make(before, step)
    died, number = 0, 0
    while died == number:
        number += 1
        folder = tmp_path / f"try-{number}"
        shutil.copytree(before, folder)
        pid = os.fork()
        if pid == 0:
            killed_at(number, folder)
            make(folder, 3)
            checkpoints.prune(folder, 3, keep_last=2)
            os._exit(0)
        died += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        found, passed = checkpoints.newest(folder)
        assert found.step in (2, 3)
        assert passed == []
        make(folder, 4)  # what the kill has left is not in the way
        checkpoints.prune(folder, 4, keep_last=1)
        assert [p.name for p in folder.glob("checkpoint-*")] == ["checkpoint-4"]
        shutil.rmtree(folder)
    assert number > 20


def killed_at(number, folder):
    """From here on the process kills itself as it begins its `number`-th file operation below `folder`."""
    left = [number]

    def hook(event, arguments):
        if event.startswith(("open", "os.", "shutil.")) and any(str(folder) in str(a) for a in arguments):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def test_a_kill_inside_the_save_never_leaves_a_half_one(tmp_path):
    make(tmp_path, 1)
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        from test_checkpoints import make
        step = 2
        while True:
            make(Path(sys.argv[1]), step, "x" * 20000)
            print(step, flush=True)
            step += 1
    """)
    here = str(Path(__file__).parent)
    for delay in (0.0, 0.003, 0.007, 0.011, 0.017):
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), here], stdout=subprocess.PIPE)
        said = int(process.stdout.readline())
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found, passed = checkpoints.newest(tmp_path)
        assert found.step >= said, "what was said to be saved is there"
        assert passed == [], "a checkpoint with its name is whole"
        checkpoints.prune(tmp_path, found.step, keep_last=1)
        for path in tmp_path.glob("checkpoint-*"):
            path.rename(tmp_path / "checkpoint-1")


def test_appended_files_go_back_and_lost_rows_are_an_error(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("1\n2\n")
    sizes = appended.sizes_of(tmp_path, ["metrics.jsonl", "filters.jsonl"])
    assert sizes == {"metrics.jsonl": 4, "filters.jsonl": 0}
    (tmp_path / "metrics.jsonl").write_text("1\n2\n3\n4")
    (tmp_path / "filters.jsonl").write_text("x\n")
    appended.cut_back(tmp_path, sizes)
    assert (tmp_path / "metrics.jsonl").read_text() == "1\n2\n"
    assert (tmp_path / "filters.jsonl").read_text() == ""
    (tmp_path / "metrics.jsonl").write_text("1")
    with pytest.raises(DataError, match="has lost rows: 1 bytes of 4"):
        appended.cut_back(tmp_path, sizes)


def test_a_second_writer_is_refused_by_name_and_a_dead_one_is_not_in_the_way(tmp_path):
    code = "import sys,time; from pathlib import Path; from trlmath.runs.lock import RunLock\n"
    code += "lock = RunLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert other.stdout.readline()
    with pytest.raises(RecipeError, match=rf"another process writes to .*\(process {other.pid} on "):
        RunLock(tmp_path)
    other.kill()
    other.communicate()
    mine = RunLock(tmp_path)
    with pytest.raises(RecipeError, match=f"process {os.getpid()} on"):
        RunLock(tmp_path)
    mine.release()
    RunLock(tmp_path).release()
