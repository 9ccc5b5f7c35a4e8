"""``trlmath recipes list | copy``: the recipes that ship with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from trlmath.errors import RecipeError, nearest
from trlmath.recipe.shipped import recipes_folder, shipped_recipes


@click.group()
def recipes() -> None:
    """List the shipped recipes, or copy one."""


@recipes.command("list")
def list_() -> None:
    """Show the shipped recipes and scripts, each with its first comment."""
    folder = recipes_folder()
    if folder is None:
        raise RecipeError("no shipped recipes were found; the installation is incomplete. Reinstall trlmath.")
    click.echo(f"in {folder}\n")
    shipped = shipped_recipes()
    width = max(map(len, shipped), default=0)
    for name, path in shipped.items():
        click.echo(f"  {name:<{width}}  {_first_comment(path)}")


@recipes.command()
@click.argument("name", required=False)
@click.argument("to", type=click.Path(path_type=Path), default=Path("."), required=False)
@click.option(
    "--all", "everything", is_flag=True, help="Copy the whole folder, scripts included, to ./recipes."
)
@click.option("--force", is_flag=True, help="Overwrite a file that is already there.")
def copy(name: str | None, to: Path, everything: bool, force: bool) -> None:
    """Copy recipe NAME to the file or folder TO (default: here), or with --all every recipe and script."""
    folder = recipes_folder()
    if folder is None:
        raise RecipeError("no shipped recipes were found; the installation is incomplete. Reinstall trlmath.")
    if everything:
        target = (Path(name) if name else to) / "recipes"
        if target.exists() and not force:
            raise RecipeError(f"{target} is already there; --force overwrites the files in it.")
        shutil.copytree(folder, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        click.echo(str(target))
        return
    shipped = shipped_recipes()
    if name is None:
        raise RecipeError(f"name the recipe to copy, or give --all. Shipped: {', '.join(shipped)}.")
    name = name.removeprefix("recipes/").removesuffix(".yaml")
    if name not in shipped:
        raise RecipeError(
            f"no shipped recipe is called {name!r}.{nearest(name, shipped)} Shipped: {', '.join(shipped)}."
        )
    target = to / f"{name.replace('/', '-')}.yaml" if to.is_dir() or not to.suffix else to
    if target.exists() and not force:
        raise RecipeError(f"{target} is already there; --force overwrites it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(shipped[name], target)
    click.echo(str(target))


def _first_comment(path: Path) -> str:
    first = path.read_text(encoding="utf-8").splitlines()[0] if path.stat().st_size else ""
    return first.lstrip("# ") if first.startswith("#") else ""
