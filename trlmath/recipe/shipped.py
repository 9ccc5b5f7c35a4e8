"""Find the recipes that ship with trlmath: in the wheel, or in the checkout."""

from __future__ import annotations

from pathlib import Path

import trlmath


def recipes_folder() -> Path | None:
    """Return the folder of shipped recipes: ``trlmath/_recipes`` of a wheel, ``recipes/`` of a checkout."""
    package = Path(trlmath.__file__).parent
    for folder in (package / "_recipes", package.parent / "recipes"):
        if folder.is_dir():
            return folder
    return None


def shipped_recipes() -> dict[str, Path]:
    """Return the YAML recipes by name, ``nano/grpo`` for ``recipes/nano/grpo.yaml``."""
    folder = recipes_folder()
    if folder is None:
        return {}
    return {p.relative_to(folder).with_suffix("").as_posix(): p for p in sorted(folder.rglob("*.yaml"))}
