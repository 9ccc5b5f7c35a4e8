"""Find the recipes and studies that ship with trlmath: in the wheel, or in the checkout."""

from __future__ import annotations

import re
from pathlib import Path

import trlmath

LAUNCHERS = "accelerate"  # a folder of configurations of accelerate: how processes start


def recipes_folder() -> Path | None:
    """Return the folder of shipped recipes: ``trlmath/_recipes`` of a wheel, ``recipes/`` of a checkout."""
    package = Path(trlmath.__file__).parent
    for folder in (package / "_recipes", package.parent / "recipes"):
        if folder.is_dir():
            return folder
    return None


def shipped_recipes() -> dict[str, Path]:
    """Return the YAML recipes by name, ``nano/grpo`` for ``recipes/nano/grpo.yaml``."""
    return {name: path for name, path in _shipped().items() if not is_study(path)}


def shipped_studies() -> dict[str, Path]:
    """Return the study files by name, ``nano/road`` for ``recipes/nano/road.yaml``."""
    return {name: path for name, path in _shipped().items() if is_study(path)}


def is_study(path: Path) -> bool:
    """Whether a YAML file looks like a study, a list of ``runs:``; it is read, not parsed."""
    return re.search(rb"^runs:", path.read_bytes(), re.MULTILINE) is not None


def _shipped() -> dict[str, Path]:
    folder = recipes_folder()
    if folder is None:
        return {}
    found = (p for p in sorted(folder.rglob("*.yaml")) if p.parent.name != LAUNCHERS)
    return {p.relative_to(folder).with_suffix("").as_posix(): p for p in found}
