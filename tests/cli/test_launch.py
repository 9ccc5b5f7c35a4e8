"""Errors of a launched recipe: told once, and where the launcher's own report ends."""

from __future__ import annotations

import errno
import json

import pytest
from launching import launch

from trlmath.cli import launch as module
from trlmath.errors import RecipeError


def fail(monkeypatch, rank, file):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(file))
    with pytest.raises(SystemExit) as caught, module.readable_errors():
        raise RecipeError("trainer.x: is no argument")
    return caught.value.code


def test_the_launcher_gets_the_error(monkeypatch, tmp_path, capsys):
    assert fail(monkeypatch, 0, tmp_path / "error.json") == 1
    assert capsys.readouterr().err == "error: trainer.x: is no argument\n"
    told = json.loads((tmp_path / "error.json").read_text())["message"]["extraInfo"]
    assert told["py_callstack"] == "error: trainer.x: is no argument"
    assert int(told["timestamp"]) > 0


def test_another_process_lets_the_first_one_speak(monkeypatch, tmp_path, capsys):
    waited = []
    monkeypatch.setattr(module.time, "sleep", waited.append)
    fail(monkeypatch, 1, tmp_path / "error.json")
    assert waited == [module.PATIENCE]
    assert capsys.readouterr().err.startswith("error in process 1: ")


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EROFS, "Read-only file system"), True),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 712 vs 711"), True),
        (Exception("Error while serializing: I/O error: No space left on device (os error 28)"), True),
        (OSError(errno.ENOENT, "No such file"), False),
        (ValueError("anything"), False),
    ],
)
def test_a_full_disk_is_known_by_whatever_met_it(error, full, capsys):
    outer = ValueError("while saving")
    outer.__cause__ = error
    assert module.no_space(error) is module.no_space(outer) is full
    with pytest.raises(SystemExit if full else type(error)), module.readable_errors():
        raise error
    assert ("start the same command again" in capsys.readouterr().err) is full


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_with_two_processes_the_last_thing_said_is_the_error():
    done = launch("trainer.learnin_rate=1", processes=2)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.strip("= ")]
    assert lines[-1].endswith("Did you mean 'learning_rate'?")
    assert "error: trainer.learnin_rate" in lines[-1]
