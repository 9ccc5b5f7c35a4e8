"""README and docs keep their word: links resolve, the file tree exists, make targets and YAML are real."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


def _code(page: Path, language: str = "") -> list[str]:
    """Fenced blocks of a language; with no language, every indented block."""
    text = page.read_text(encoding="utf-8")
    if language:
        return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return re.findall(r"(?m)(?:^ {4}.*\n)+", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_resolve(page: Path):
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing, f"{page.name} links to {missing}"


def test_readmes_file_tree_exists():
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").split("## Where things are")[1].split("\n## ")[0]
    )
    folder = ""
    for indent, name in re.findall(r"(?m)^ {4}( *)(\S+)(?= |$)", section):
        if len(indent) == 0:
            folder = name
        if len(indent) in (0, 2):  # deeper text is a continued description
            path = ROOT / (name if len(indent) == 0 else folder + name)
            assert path.exists(), f"README's tree names {path.relative_to(ROOT)}"


def test_every_make_target_the_pages_name_exists():
    targets = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"(?m)^ {4}make ([a-z]+)", text)) | set(re.findall(r"`make ([a-z]+)", text))
        assert named <= targets, f"{page.name} names {named - targets}"


def test_readmes_recipe_follows_the_schema():
    from ruamel.yaml import YAML

    from trlmath.recipe.schema import Recipe

    (block,) = _code(ROOT / "README.md", "yaml")
    recipe = Recipe.model_validate(YAML(typ="safe").load(StringIO(block)))
    assert recipe.rollout.prompts_per_step == 32
    assert [entry.name for entry in recipe.rewards] == ["r1_zero", "shout", "my_reward.py:short_and_right"]


def test_readmes_plugin_works_as_printed():
    (block,) = _code(ROOT / "README.md", "python")
    space: dict = {}
    exec(compile(block, "README.md", "exec"), space)
    offered: dict = {}
    space["register_rewards"](register=offered.__setitem__)
    assert offered["shout"](completions=["YES", "no"], answer=["", ""]) == [1.0, 0.0]


def test_quickstarts_reward_works_as_printed():
    (block,) = [code for code in _code(ROOT / "docs" / "quickstart.md") if "def short_and_right" in code]
    space: dict = {}
    exec(compile(re.sub(r"(?m)^ {4}", "", block), "quickstart.md", "exec"), space)
    assert space["short_and_right"](completions=["x = 4", "no"], answer=["4", "4"]) == [1.0, 0.0]
