"""`trlmath plugins new`: what it writes passes its own tests at once and is offered by its name."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest
from click.testing import CliRunner

from trlmath.cli import cli
from trlmath.components import KINDS
from trlmath.errors import RecipeError
from trlmath.plugins import VARIABLE, discover
from trlmath.scaffold import write_plugin


@pytest.fixture(autouse=True)
def only_builtins(monkeypatch):
    """Names taken by whatever is installed must not matter."""
    monkeypatch.setenv(VARIABLE, "")
    discover.cache_clear()
    yield
    discover.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_own_tests_and_lint(kind, tmp_path):
    folder = write_plugin("my-own", kind, tmp_path)
    written = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert written == {
        *("pyproject.toml", "README.md", ".gitignore", ".github/workflows/test.yml"),
        *("trlmath_my_own.py", "tests/test_trlmath_my_own.py"),
    }
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "trlmath-my-own"
    assert project["entry-points"]["trlmath"] == {"my_own": "trlmath_my_own"}
    for file in folder.rglob("*"):
        assert file.is_dir() or "{{" not in file.read_text(), f"{file} is not rendered"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "trlmath.pytest_plugin"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    lint = [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length", "110", str(folder)]
    checked = subprocess.run(lint, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_the_command_says_what_comes_next(tmp_path):
    result = CliRunner().invoke(cli, ["plugins", "new", "trlmath-brief", "--into", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert f"pip install -e '{tmp_path / 'trlmath-brief'}[test]'" in result.output
    assert (tmp_path / "trlmath-brief" / "trlmath_brief.py").exists()


@pytest.mark.parametrize("name", ["Shout", "9lives", "a b", "a--b", "../x", "", "_x", "true", "null"])
def test_a_name_that_cannot_be_one(name, tmp_path):
    with pytest.raises(RecipeError, match="cannot be a plugin's name"):
        write_plugin(name, "reward", tmp_path)


def test_a_name_that_is_taken(tmp_path):
    with pytest.raises(RecipeError, match="there is a reward 'length' already"):
        write_plugin("length", "reward", tmp_path)
    write_plugin("length", "filter", tmp_path)
    with pytest.raises(RecipeError, match="exists already"):
        write_plugin("length", "dataset", tmp_path)


def test_a_file_is_no_folder_to_write_into(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match="is a file"):
        write_plugin("brief", "reward", tmp_path / "file")
