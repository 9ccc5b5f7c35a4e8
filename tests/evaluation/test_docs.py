"""docs/evaluation.md names every category, every field of a row and every option of the command."""

from __future__ import annotations

import re
from pathlib import Path

from trlmath.cli.evaluate import run
from trlmath.evaluation.advice import ADVICE
from trlmath.evaluation.sample import Sample

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")


def test_every_category_with_its_meaning():
    for category, (meaning, _) in ADVICE.items():
        assert f"| `{category}` | {meaning} |" in TEXT


def test_every_field_of_a_row():
    named = set(re.findall(r"`(\w+)`", TEXT))
    assert set(Sample.__slots__) <= named


def test_every_option():
    for option in run.params:
        names = [name for name in option.opts if name.startswith("-")]
        assert all(f"`{name}`" in TEXT or f"{name} " in TEXT for name in names), names
