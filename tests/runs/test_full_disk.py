"""A full or read-only disk: what was whole stays whole, rows can be cut back, and the error says it."""

from __future__ import annotations

import sys
from pathlib import Path

from small_disk import on_small_disk

HERE = Path(__file__).parent
HEAD = f"""
import sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
from pathlib import Path
from test_checkpoints import make
from trlmath.errors import TrlmathError
from trlmath.runs import appended, checkpoints
from trlmath.runs.directory import RunDirectory
from trlmath.runs.lock import RunLock
from trlmath.runs.read import lines_of
folder = Path(sys.argv[1])
"""


def script(text, folder):
    return [sys.executable, "-c", HEAD + text, folder]


def test_a_save_that_fills_the_disk_leaves_the_one_before(tmp_path):
    disk = tmp_path / "disk"
    save = "make(folder, int(sys.argv[2]), 'x' * 600)"  # 60,000 bytes
    look = "found, passed = checkpoints.newest(folder); print(found.step, passed)"
    first, full, between, after, last = on_small_disk(
        disk,
        "100k",
        [*script(save, disk), 1],
        [*script(save, disk), 2],
        script(look, disk),
        "300k",
        [*script(save, disk), 2],
        script(look, disk),
    )
    assert first[1] == after[1] == 0
    assert full[1] == 1
    assert "No space left on device" in full[0]
    assert between[0] == "1 []"
    assert last[0] == "2 []"


def test_rows_on_a_full_disk_are_cut_back_and_whole_files_stay_as_they_were(tmp_path):
    disk = tmp_path / "disk"
    fill = """
files = RunDirectory(folder, again=True)
files.write_json("manifest.json", {"status": "running"})
files.append("metrics.jsonl", {"step": 1})
sizes = appended.flushed_sizes(folder, ["metrics.jsonl"])
try:
    while True:
        files.append("metrics.jsonl", {"step": 2, "text": "x" * 999})
except OSError as error:
    print(error.strerror)
try:
    files.write_json("manifest.json", {"status": "finished" * 999})
except OSError as error:
    print(error.strerror)
rows = list(lines_of(folder / "metrics.jsonl"))
print(rows[0], {row["step"] for row in rows[1:]}, (folder / "metrics.jsonl").read_bytes()[-1:])
print((folder / "manifest.json").read_text())
appended.cut_back(folder, sizes)
files.clear_leftovers()
print(list(lines_of(folder / "metrics.jsonl")), sorted(p.name for p in folder.iterdir()))
"""
    ((told, status),) = on_small_disk(disk, script(fill, disk))
    assert status == 0, told
    assert told.splitlines() == [
        "No space left on device",
        "No space left on device",
        "{'step': 1} {2} b'x'",  # the last row is half there, and readers pass over it
        "{",
        '  "status": "running"',
        "}",
        "",
        "[{'step': 1}] ['manifest.json', 'metrics.jsonl']",
    ]


def test_a_read_only_directory_is_told_at_once(tmp_path):
    disk = tmp_path / "disk"
    text = """
for what in (lambda: RunLock(folder), lambda: RunDirectory(folder / "run"), lambda: RunLock(folder / "run")):
    try:
        what()
    except TrlmathError as error:
        print(error)
"""
    ((told, status),) = on_small_disk(disk, "ro", script(text, disk))
    assert status == 0, told
    lines = told.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith(f"run.dir={disk}")
        assert "Read-only file system" in line
        assert "Choose another run.dir" in line
