"""Shared fixtures: the case files beside the checkout, one engine's environment, quiet libraries.

Everything here is for all tests; what only one room needs lives in that room's own conftest.py.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# Set before anything imports torch, transformers or vLLM: tests never reach for a hub, and two
# processes on a small machine must not each start a thread per core.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")


def _shared_dir() -> Path:
    """Folder of published test cases: `TRLMATH_SHARED`, else `shared/` beside the checkout."""
    return Path(os.environ.get("TRLMATH_SHARED", ROOT.parent / "shared"))


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of shared cases, data and prompts; skips the test where it is absent."""
    folder = _shared_dir()
    if not folder.is_dir():
        pytest.skip(f"no shared cases at {folder} (set TRLMATH_SHARED to their folder)")
    return folder


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the checkout the tests run from."""
    return ROOT


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `vllm` where vLLM is not installed, saying how to get it."""
    if importlib.util.find_spec("vllm") is not None:
        return
    skip = pytest.mark.skip(reason="vLLM is not installed (make setup installs it where it exists)")
    for item in items:
        if item.get_closest_marker("vllm"):
            item.add_marker(skip)
