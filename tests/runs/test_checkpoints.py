"""Checkpoints: a kill, a cut file, a flipped byte or a lost file never make a bad one count as good."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dying import killed_at_every_file_operation

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
    folder = tmp_path / "checkpoints"
    for step in (1, 2):
        make(folder, step)

    def save():
        make(folder, 3)
        checkpoints.prune(folder, 3, keep_last=2)

    deaths = 0
    for _ in killed_at_every_file_operation(save, folder):
        deaths += 1
        found, passed = checkpoints.newest(folder)
        assert found.step in (2, 3)
        assert passed == []
        make(folder, 4)  # what the kill has left is not in the way
        checkpoints.prune(folder, 4, keep_last=1)
        assert [p.name for p in folder.glob("checkpoint-*")] == ["checkpoint-4"]
    assert deaths > 20


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


def test_a_folder_saved_whole_is_the_old_one_or_the_new_one(tmp_path):
    folder = tmp_path / "checkpoints"
    (folder / "final").mkdir(parents=True)
    (folder / "final" / "model.safetensors").write_text("old")

    def save():
        with checkpoints.saved_whole(folder / "final", True, lambda: None) as beside:
            beside.mkdir()
            for name in ("model.safetensors", "config.json"):
                (beside / name).write_text("new")

    deaths = 0
    for _ in killed_at_every_file_operation(save, folder):
        deaths += 1
        found = {p.name: p.read_text() for p in (folder / "final").glob("*")}
        whole = {"model.safetensors": "new", "config.json": "new"}
        assert found in ({"model.safetensors": "old"}, {}, whole)  # {}: the new one lies beside
        save()
        assert {p.name: p.read_text() for p in (folder / "final").glob("*")} == whole
        assert [p.name for p in folder.iterdir()] == ["final"]
    assert deaths > 8
