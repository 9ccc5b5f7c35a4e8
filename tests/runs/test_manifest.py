"""The manifest: versions, code and variables; a change of code shows in its hash."""

from __future__ import annotations

import subprocess

import pytest

from trlmath.data.fingerprint import fingerprint
from trlmath.runs import manifest
from trlmath.runs.manifest import describe, git_state
from trlmath.types import Problem


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_a_clean_checkout_has_no_diff(repository):
    state = git_state(repository)
    assert len(state["commit"]) == 40
    assert state["changed"] == []
    assert state["diff_sha256"] is None


def test_every_change_changes_the_hash(repository):
    hashes = set()
    (repository / "a.py").write_text("x = 2\n")
    hashes.add(git_state(repository)["diff_sha256"])
    (repository / "a.py").write_text("x = 3\n")
    hashes.add(git_state(repository)["diff_sha256"])
    (repository / "new.py").write_text("y = 1\n")
    state = git_state(repository)
    hashes.add(state["diff_sha256"])
    (repository / "new.py").write_text("y = 2\n")
    hashes.add(git_state(repository)["diff_sha256"])
    assert len(hashes) == 4
    assert sorted(state["changed"]) == ["a.py", "new.py"]
    assert git_state(repository) == git_state(repository)


def test_no_repository_and_no_git(tmp_path, monkeypatch):
    assert git_state(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def test_versions_and_variables(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    told = describe(recipe="mine")
    assert told["recipe"] == "mine"
    assert told["packages"]["trl"].startswith("1.")
    assert "click" in told["environment"]
    assert not set(told["packages"]) & set(told["environment"])
    assert told["variables"]["OMP_NUM_THREADS"] == "1"
    assert set(told["variables"]) <= set(manifest.VARIABLES)


def test_a_fingerprint_sees_every_field_and_the_order():
    base = [Problem("q", "a"), Problem("r", "b")]
    others = [
        [Problem("q", "a"), Problem("r", "c")],
        [Problem("r", "b"), Problem("q", "a")],
        [Problem("q", "a"), Problem("r", "b", trace="t")],
        [Problem("q", "a"), Problem("r", "b", metadata={"level": 1})],
        [Problem("q", "a")],
    ]
    assert len({fingerprint(rows) for rows in [base, *others]}) == 6
    assert fingerprint(base) == fingerprint([Problem("q", "a"), Problem("r", "b")])
