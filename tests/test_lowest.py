"""`.ci/lowest.py`: what is installed is exactly the lower bounds, each of which is there."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("trlmath_lowest_script", ROOT / ".ci" / "lowest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_bound_becomes_a_pin(script):
    assert script.lowest("numpy>=2.0,<3") == "numpy==2.0"
    assert script.lowest("math-verify[antlr4-13-2]>=0.9,<0.10") == "math-verify[antlr4-13-2]==0.9"
    with pytest.raises(ValueError, match="has no lower bound"):
        script.lowest("numpy<3")


def test_every_dependency_and_tool_is_pinned_and_torch_comes_first(script):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = script.pins(project)
    assert len(pins) == len(project["dependencies"]) + len(script.TOOLS)
    assert pins[0].startswith("torch==")
    assert all("==" in pin for pin in pins)


def test_ci_runs_it():
    assert ".ci/lowest.py" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
