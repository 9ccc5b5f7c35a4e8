"""docs/plugins.md and docs/writing-a-plugin.md: their code runs, their YAML builds, their commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from trlmath.cli.plugins import plugins as commands
from trlmath.conformance import Subject, check_subjects
from trlmath.conformance.core import PROPERTIES
from trlmath.conformance.subject import HINTS
from trlmath.recipe.schema import Recipe
from trlmath.rewards import RewardCaller, build_rewards
from trlmath.scaffold import write_plugin

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "writing-a-plugin.md").read_text(encoding="utf-8")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def rewards_of(block):
    return Recipe.model_validate(YAML(typ="safe").load(StringIO(block))).rewards


def the(found, marker):
    (block,) = [block for block in found if marker in block]
    return block


def test_the_reference_plugin_works_as_printed(tmp_path, monkeypatch):
    (tmp_path / "trlmath_shout_docs.py").write_text(the(blocks(REFERENCE, "python"), "class Shout"))
    monkeypatch.syspath_prepend(str(tmp_path))
    from trlmath.conformance import subjects_of_plugin

    (subject,) = subjects_of_plugin("trlmath_shout_docs", given={"share": 0.5})
    assert [g.reward for g in subject.reward()(completions=["AB cd", "ab", ""])] == [1.0, 0.0, 0.0]
    (report,) = check_subjects([subject])
    assert not report.failures, report.to_text()


def test_trls_rewards_as_printed():
    entries = rewards_of(the(blocks(REFERENCE, "yaml"), "accuracy_reward"))
    accuracy, think, overlong = build_rewards(entries)
    batch = {
        "completions": [r"<think>\nso\n</think> \boxed{4}"],
        "completion_ids": [[1] * 80],
        "answer": ["4"],
    }
    assert accuracy(**batch)[0].reward == 1.0
    assert think(**batch)[0].reward in (0.0, 1.0)
    assert overlong(**batch)[0].reward == -0.5


def test_a_function_of_a_rubric_as_printed(tmp_path, monkeypatch):
    (tmp_path / "my_rubric.py").write_text(the(blocks(REFERENCE, "python"), "exact_match"))
    monkeypatch.chdir(tmp_path)
    (reward,) = build_rewards(rewards_of(the(blocks(REFERENCE, "yaml"), "my_rubric")))
    assert [g.reward for g in reward(completions=["it is 4", "it is 5"], answer=["4", "4"])] == [1.0, 0.0]
    (report,) = check_subjects([Subject(reward.component)], clean=False)
    assert not report.failures, report.to_text()


def test_a_callable_of_an_installed_package_as_printed(tmp_path, monkeypatch):
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rewards.py").write_text(
        "def edit_similarity(completions, targets):\n"
        "    return [100.0 * (c == t) for c, t in zip(completions, targets, strict=True)]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (reward,) = build_rewards(rewards_of(the(blocks(REFERENCE, "yaml"), "some_package")))
    assert isinstance(reward, RewardCaller)
    reward.check_columns(["question", "answer"])
    grades = reward(completions=["4", "5"], answer=["4", "4"])
    assert [reward.rule.value(g.reward) for g in grades] == [1.0, 0.0]


@pytest.mark.parametrize("page", [REFERENCE, GUIDE], ids=["plugins", "writing-a-plugin"])
def test_every_yaml_follows_the_schema_and_every_command_exists(page):
    for block in blocks(page, "yaml"):
        rewards_of(block)
    for command in re.findall(r"trlmath plugins ([a-z]+)", page):
        assert command in commands.commands, command
    for code in blocks(page, "python"):
        compile(code, "docs", "exec")


def test_the_suite_that_the_pages_describe_is_the_suite():
    named = set(re.findall(r'"(\w+)":', GUIDE.split("| `conformance = {...}`")[1].split("\n## ")[0]))
    assert set(HINTS) <= named
    for line in re.findall(r"\s(?:pass|FAIL)  ([^:]+): ", GUIDE):
        assert line in {p.name for p in PROPERTIES}


def test_the_guide_leads_to_a_package_whose_tests_pass(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRLMATH_PLUGINS", "")
    folder = write_plugin("brief", "reward", Path())
    for file in re.findall(r"(?m)^\| `([^`]+)` \|", GUIDE.split("| file | |")[1].split("\n## ")[0]):
        assert (folder / file).exists(), f"the guide promises {file}"
    (folder / "trlmath_brief.py").write_text(the(blocks(GUIDE, "python"), "class Brief"))
    (folder / "tests" / "test_trlmath_brief.py").write_text(the(blocks(GUIDE, "python"), "check_plugin"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "trlmath.pytest_plugin"],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder.resolve()), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
