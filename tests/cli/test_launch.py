"""Errors of a launched recipe: told once, and where the launcher's own report ends."""

from __future__ import annotations

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


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_with_two_processes_the_last_thing_said_is_the_error():
    done = launch("trainer.learnin_rate=1", processes=2)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.strip("= ")]
    assert lines[-1].endswith("Did you mean 'learning_rate'?")
    assert "error: trainer.learnin_rate" in lines[-1]
