"""The built-in components and every package under plugins/ pass the conformance suite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from trlmath.cli import cli
from trlmath.conformance import check_subjects, subjects_of_plugin
from trlmath.plugins import VARIABLE, discover

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(p.parent for p in (ROOT / "plugins").glob("*/pyproject.toml"))


@pytest.mark.slow
def test_the_builtins_conform():
    failed = [
        r.to_text(everything=False)
        for r in check_subjects(subjects_of_plugin("trlmath.builtin"))
        if r.failures
    ]
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.name)
def test_packages_conform_and_pass_their_own_tests(folder):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "trlmath.pytest_plugin",
            str(folder),
        ],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tests = "".join(path.read_text() for path in (folder / "tests").glob("test_*.py"))
    assert "check_plugin(" in tests, "its tests run the conformance suite"


@pytest.fixture
def run(monkeypatch):
    """Run a command in process, with the built-in plugins only."""
    monkeypatch.setenv(VARIABLE, "")
    discover.cache_clear()
    yield lambda *arguments: CliRunner().invoke(cli, ["plugins", "check", *arguments])
    discover.cache_clear()


def test_check_prints_each_property_and_exits_with_0(run):
    result = run("length", "-o", "target=5", "-o", "max=9")
    assert result.exit_code == 0, result.output
    assert "  pass  order: the order of the completions does not matter" in result.output
    assert "1 components, 14 properties, 0 failures" in result.output
    assert run("length", "--failures").output.strip() == "1 components, 14 properties, 0 failures"


def test_check_of_a_file_shows_the_counterexample_and_exits_with_1(run, tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def bad(completions):\n    'Bad.'\n    return [1 / len(c) for c in completions]\n")
    result = run(f"{file}:bad")
    assert result.exit_code == 1
    assert "  FAIL  any text" in result.output
    assert "ZeroDivisionError" in result.output
    data = json.loads(run(f"{file}:bad", "--json").output)
    assert {r["status"] for r in data[0]["results"]} == {"pass", "fail", "skip"}


def test_check_wants_a_name_or_all(run):
    assert run().exit_code == 2
    assert run("length", "--all").exit_code == 2
    assert run("lenght").exit_code == 1
