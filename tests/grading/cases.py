"""Where the shared cases lie, for the tests that measure on them; they skip when the cases are absent."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("TRLMATH_SHARED") or Path(__file__).parents[2].parent / "shared")


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a JSON-lines file below the shared folder, or a skip."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {path}")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
