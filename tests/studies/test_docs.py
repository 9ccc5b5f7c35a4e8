"""docs/studies.md keeps its word: every key with its default, examples that load, every shipped study."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trlmath.recipe import shipped_studies
from trlmath.recipe.yamls import parse
from trlmath.studies.children import check_launcher
from trlmath.studies.expand import expand
from trlmath.studies.schema import RunEntry, StudyFile

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "studies.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("section", [StudyFile, RunEntry])
def test_every_key_is_documented(section):
    for name in section.model_fields:
        assert re.search(rf"^\| `{name}` \|", PAGE, re.MULTILINE), name


def test_the_example_is_a_study():
    example, launchers = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    runs = expand(StudyFile.model_validate(parse(example, "docs")), Path())
    assert len(runs) == 1 + 2 + 12
    assert {run.source for run in runs if run.algorithm == "grpo"} == {"sft-small"}
    for line in launchers.splitlines():
        check_launcher(parse(line, "docs")["launcher"])


def test_every_shipped_study_is_listed():
    for name in shipped_studies():
        folder, slash, last = name.rpartition("/ablations/")
        listed = (f"`{folder}/ablations/...`", f"`.../{last}`") if slash else (f"`{name}`",)
        assert all(piece in PAGE for piece in listed), name
