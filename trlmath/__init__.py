"""trlmath: train mathematical reasoning with TRL, every debated choice a named, pluggable part.

Public names load on first use, so that ``import trlmath`` imports neither torch nor transformers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "hookimpl": "trlmath.hookspecs",
    "Problem": "trlmath.types",
    "Grade": "trlmath.types",
    "Rollout": "trlmath.types",
    "Group": "trlmath.types",
    "Keep": "trlmath.types",
    "Drop": "trlmath.types",
    "Policy": "trlmath.sampling.policy",
    "SamplingSettings": "trlmath.sampling.settings",
    "Prompt": "trlmath.data.prompts",
    "Recipe": "trlmath.recipe",
    "load_recipe": "trlmath.recipe",
    "registry": "trlmath.plugins",
    "TrlmathError": "trlmath.errors",
    "RecipeError": "trlmath.errors",
    "PluginError": "trlmath.errors",
    "DataError": "trlmath.errors",
    "GradingError": "trlmath.errors",
    "EngineError": "trlmath.errors",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604  (the names are resolved by __getattr__)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'trlmath' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
