"""docs/recipes.md names every key of the schema with its default, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from trlmath.recipe import Recipe, shipped_recipes
from trlmath.recipe.explain import all_keys, model_at
from trlmath.recipe.yamls import parse

TEXT = (Path(__file__).resolve().parent.parent.parent / "docs" / "recipes.md").read_text(encoding="utf-8")
DOCUMENTED = dict(re.findall(r"^\| `([a-z_]+\.[a-z_.]+)` \| (.*?) \|", TEXT, flags=re.MULTILINE))


OPTIONAL = [name for name, field in Recipe.model_fields.items() if field.default is None]


def leaves():
    """Keys below a section; those of a named dataset or prompt are described in words."""
    keys = [k for k in all_keys() if "." in k]
    return {k for k in keys if not re.match(r"data\.(train|eval|prompt)\.", k)}


def test_every_key_is_documented_and_no_other():
    assert set(DOCUMENTED) == leaves()


def test_every_section_has_a_heading():
    headings = re.findall(r"^## `(\w+)`$", TEXT, flags=re.MULTILINE)
    assert headings == list(Recipe.model_fields)


def test_the_defaults_are_right():
    optional = {name: model_at([name])().model_dump() for name in OPTIONAL}
    defaults = Recipe().to_dict() | optional
    checked = 0
    for key, shown in DOCUMENTED.items():
        section, name = key.split(".", 1)
        if not shown.startswith("`") or section in ("rewards", "filters") or "." in name:
            continue
        actual = defaults[section][name]
        actual = (
            actual["name"] if section == "data" and isinstance(actual, dict) and "name" in actual else actual
        )
        assert parse(shown.strip("`"), key) == actual, key
        checked += 1
    assert checked > 25


def test_every_shipped_recipe_is_listed():
    for name in shipped_recipes():
        assert f"`{name}`" in TEXT
