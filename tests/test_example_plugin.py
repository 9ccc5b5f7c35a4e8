"""The example distribution: built, installed apart, found by its entry point and used through a recipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "plugins" / "trlmath-format-steps"
USE = """
from trlmath.recipe import check_components, load_recipe
from trlmath.rewards import build_rewards

overrides = ["rewards.1.name=format_steps", "rewards.1.weight=0.2", "rewards.1.options.steps=2"]
recipe = load_recipe("nano/grpo", overrides)
check_components(recipe)
reward = build_rewards(recipe.rewards)[1]
print(reward.component.origin.distribution, reward.component.origin.version, reward.weight)
print([grade.reward for grade in reward(completions=["a </think> <answer>", "a </think>", "a"])])
"""


def run(*command, **environment):
    """Run a process and return its output; its errors are the failure's message."""
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder into which pip installed the example, as it would into site-packages."""
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target)]
    run(sys.executable, "-m", "pip", "install", *options, str(FOLDER))
    return target


def test_it_is_listed_with_its_origin(site):
    listed = run(sys.executable, "-m", "trlmath", "plugins", "list", "--kind", "reward", PYTHONPATH=str(site))
    assert "format_steps  (steps: int = 4)" in listed
    assert f"trlmath-format-steps 0.1.0, {site / 'trlmath_format_steps.py'}:" in listed


def test_a_recipe_uses_it_by_name(site):
    lines = run(sys.executable, "-c", USE, PYTHONPATH=str(site)).splitlines()
    assert lines == ["trlmath-format-steps 0.1.0 0.2", "[1.0, 0.5, 0.0]"]


def test_without_it_the_name_is_unknown(site):
    done = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True)
    assert done.returncode == 1
    assert "no reward is called 'format_steps'" in done.stderr


def test_the_variable_leaves_it_out(site):
    listed = run(sys.executable, "-m", "trlmath", "plugins", "list", PYTHONPATH=str(site), TRLMATH_PLUGINS="")
    assert "format_steps" not in listed


def test_its_own_tests_pass(site):
    run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER), PYTHONPATH=str(site))
