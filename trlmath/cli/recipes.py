"""``trlmath recipes list | copy``: the recipes and studies that ship with the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from trlmath.cli.echo import echo
from trlmath.errors import RecipeError, nearest
from trlmath.recipe.shipped import LAUNCHERS, recipes_folder, shipped_recipes, shipped_studies


@click.group()
def recipes() -> None:
    """List the shipped recipes and studies, or copy them to edit them."""


@recipes.command("list")
def list_() -> None:
    """Show the shipped recipes and studies, each with its first comment."""
    folder = _folder()
    single, studies = shipped_recipes(), shipped_studies()
    width = max(map(len, [*single, *studies]), default=0)
    echo(f"in {folder}:")
    for name, path in single.items():
        echo(f"  {name:<{width}}  {_first_comment(path)}")
    if studies:
        echo("studies, several runs each, for `trlmath study NAME`:")
    for name, path in studies.items():
        echo(f"  {name:<{width}}  {_first_comment(path)}")


@recipes.command(short_help="Copy scripts and recipes to a folder.")
@click.argument("to", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1)
@click.option("--force", is_flag=True, help="Overwrite files that are already there.")
def copy(to: Path, names: tuple[str, ...], force: bool) -> None:
    """Copy scripts, recipes and studies to the folder TO; with NAMES (such as nano/grpo), only those."""
    folder = _folder()
    shipped = shipped_recipes() | shipped_studies()
    wanted = [name.removeprefix("recipes/").removesuffix(".yaml") for name in names] or list(shipped)
    for name in wanted:
        if name not in shipped:
            raise RecipeError(
                f"no shipped recipe is called {name!r}.{nearest(name, shipped)} "
                f"Shipped: {', '.join(shipped)}."
            )
    launchers = [] if names else sorted((folder / LAUNCHERS).glob("*.yaml"))
    files = [*sorted(folder.glob("*.py")), *launchers, *(shipped[name] for name in wanted)]
    targets = [to / file.relative_to(folder) for file in files]
    there = [str(target) for target in targets if target.exists()]
    if there and not force:
        raise RecipeError(
            f"{', '.join(there)}: already there. Choose another folder, or overwrite with --force."
        )
    for file, target in zip(files, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        echo(str(target))


def _folder() -> Path:
    folder = recipes_folder()
    if folder is None:
        raise RecipeError(
            "the shipped recipes are missing: the installation is incomplete. Reinstall trlmath."
        )
    return folder


def _first_comment(path: Path) -> str:
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.lstrip("# ") if first.startswith("#") else ""
