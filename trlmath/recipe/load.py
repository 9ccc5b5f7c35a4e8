"""From a YAML file and overrides to a checked Recipe, without importing torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trlmath.errors import RecipeError, nearest
from trlmath.recipe.checks import cross_field_errors
from trlmath.recipe.explain import explain
from trlmath.recipe.overrides import apply_overrides
from trlmath.recipe.schema import Recipe, Ref
from trlmath.recipe.shipped import is_study, shipped_recipes, shipped_studies
from trlmath.recipe.yamls import read
from trlmath.secrets import secrets_in


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Return the recipe of a YAML file (or of a shipped name such as ``nano/grpo``) with overrides applied.

    File names in it may be relative to the working directory or to the recipe's folder.

    Raises RecipeError naming every wrong key at once: unknown keys, wrong types, contradictions.
    """
    source = find_recipe(path)
    data = read(source)
    if data is None:
        raise RecipeError(f"{source} is empty. Start from a shipped recipe: `trlmath recipes list`.")
    if not isinstance(data, dict):
        raise RecipeError(f"{source} is a {type(data).__name__}, not a mapping of sections such as `model:`.")
    recipe = parse_recipe(apply_overrides(data, overrides, Recipe().to_dict()), str(source))
    recipe._source = source
    _anchor(recipe, source.parent)
    return recipe


def parse_recipe(data: dict[str, Any], where: str = "the recipe") -> Recipe:
    """Return the Recipe of plain data. Raises RecipeError listing every error."""
    if secret := list(secrets_in(data)):
        # first, and alone: the other errors tell what was given
        raise RecipeError(
            f"{where} is not a valid recipe:\n"
            + "\n".join(
                f"{key}: holds a secret, and a run keeps its recipe. Put it in an environment variable "
                "(HF_TOKEN for the Hub, VLLM_API_KEY for servers, a plugin's own) and remove it here."
                for key in secret
            )
        )
    if "rewards" in data and data["rewards"] is None:
        raise RecipeError(
            f"{where} is not a valid recipe:\nrewards: is empty, so nothing says what to train on. Name at "
            "least one, or leave the key out for the default, r1_zero."
        )
    # An empty section (`trainer:` with nothing under it) means its defaults.
    data = {key: value for key, value in data.items() if value is not None}
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise RecipeError(f"{where} is not a valid recipe:\n{explain(error, data)}") from error
    errors = cross_field_errors(recipe)
    if errors:
        raise RecipeError(f"{where} is not a valid recipe:\n" + "\n".join(errors))
    return recipe


def find_recipe(path: str | Path) -> Path:
    """Return the file of a recipe given by path or shipped name. Raises RecipeError."""
    file = Path(path).expanduser()
    shipped = shipped_recipes()
    name = str(path).removeprefix("recipes/").removesuffix(".yaml")
    if name in shipped_studies() or (file.is_file() and is_study(file)):
        raise RecipeError(f"{path} is a study, a list of runs, and not a recipe: `trlmath study {path}`.")
    if file.is_file():
        return file
    if name in shipped:
        return shipped[name]
    raise RecipeError(
        f"there is no recipe {str(path)!r}.{nearest(name, shipped)} Give a YAML file, or a shipped one: "
        f"{', '.join(shipped) or 'none found'}."
    )


def _anchor(recipe: Recipe, folder: Path) -> None:
    """Make file names that exist beside the recipe, and not in the working directory, absolute."""
    refs: list[Ref] = [
        recipe.data.train,
        recipe.data.prompt,
        recipe.advantage,
        *recipe.rewards,
        *recipe.filters,
    ]
    refs += [recipe.data.eval] if recipe.data.eval else []
    for ref in refs:
        ref.name = anchored(ref.name, folder)
    recipe.model.path = anchored(recipe.model.path, folder)


def anchored(name: str, folder: Path) -> str:
    """`name`, made absolute if it is a file that is in `folder` and not in the working directory."""
    file, colon, attr = name.partition(":") if ".py:" in name else (name, "", "")
    looks_like_file = "/" in file or "." in file
    if looks_like_file and not Path(file).expanduser().exists() and (folder / file).exists():
        return f"{(folder / file).resolve()}{colon}{attr}"
    return name
