"""Components that end the process, hang, or print: the suite tells, survives, and checks the others."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from trlmath.cli import cli
from trlmath.components import Component, Registry
from trlmath.conformance import Subject, check_subjects, probe
from trlmath.targets import Origin


@pytest.mark.parametrize(
    ("body", "told"),
    [("os._exit(3)", "ended its process with status 3"), ("time.sleep(1000)", "no answer within 3 s")],
)
def test_a_component_that_ends_or_hangs_its_process_is_told_and_the_others_are_checked(
    tmp_path, monkeypatch, body, told
):
    monkeypatch.setattr(probe, "PATIENCE", 3.0)
    file = tmp_path / "deadly.py"
    file.write_text(
        f"import os, time\ndef deadly(completions):\n    'Deadly.'\n    {body}\n"
        "def fine(completions):\n    'Fine.'\n    print('noise')\n    return [0.0] * len(completions)\n"
    )
    components = [Registry().resolve("reward", f"{file}:{name}") for name in ("deadly", "fine")]
    deadly, fine = check_subjects([Subject(component) for component in components])
    assert [result.property for result in deadly.results] == ["tried"]
    assert told in deadly.failures[0].detail
    assert "in deadly" in deadly.failures[0].detail or "sleep" not in body, "where it hung"
    assert not fine.failures


def test_what_a_component_prints_is_not_in_the_report(tmp_path):
    file = tmp_path / "noisy.py"
    file.write_text(
        "def noisy(completions):\n    'Noisy.'\n    print('noise')\n    return [0.0] * len(completions)\n"
    )
    result = CliRunner().invoke(cli, ["plugins", "check", f"{file}:noisy", "--json"])
    assert json.loads(result.stdout)[0]["name"] == f"{file}:noisy"
    assert "noise" in result.stderr


def test_advantages_that_are_nan_are_told_once(tmp_path):
    def nan(rewards):
        """Not a number."""
        return rewards * float("nan")

    (report,) = check_subjects(
        [Subject(Component("advantage", "nan", nan, Origin("trlmath-x", "1.0", "x.py:1")))], clean=False
    )
    failed = {result.property for result in report.failures}
    assert "finite" in failed
    assert "deterministic" not in failed


def test_a_file_alone_is_no_component(tmp_path):
    done = CliRunner().invoke(cli, ["plugins", "check", str(tmp_path / "mine.py")])
    assert "mine.py:NAME" in str(done.exception)
