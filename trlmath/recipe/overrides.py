"""Dotted overrides: ``sampling.temperature=0.7``, ``rewards.0.weight=2``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trlmath.errors import RecipeError
from trlmath.recipe.yamls import parse


def apply_overrides(
    data: dict[str, Any], overrides: Iterable[str], defaults: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return `data` with every ``dotted.key=value`` applied in order; the value is YAML.

    A number in the path is an index of a list; the index after the last one appends. A bare component
    name on the way becomes ``{name: it}``, so that its options can be set; where `data` lacks what the
    path leads through, it starts from `defaults`. Raises RecipeError.
    """
    defaults = defaults or {}
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip().removeprefix("--")
        if not equals or not key or not all(key.split(".")):
            raise RecipeError(f"the override {override!r} is not of the form dotted.key=value.")
        data = _set(data, defaults, key.split("."), parse(text, f"the override {override!r}"), key)
    return data


def _set(node: Any, default: Any, path: list[str], value: Any, key: str) -> Any:
    """Return a copy of `node` with the value at `path` replaced."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(node, str):
        node = {"name": node}
    if isinstance(node, list):
        if not head.isdigit() or int(head) > len(node):
            raise RecipeError(
                f"the override {key!r}: {head!r} is no index of a list of {len(node)}; "
                f"give 0 to {len(node)} ({len(node)} appends)."
            )
        index = int(head)
        items = list(node) if index < len(node) else [*node, None]
        items[index] = _set(items[index], None, rest, value, key)
        return items
    if node is None:
        node = {}
    if not isinstance(node, dict):
        raise RecipeError(f"the override {key!r}: {node!r} stands where {head!r} should be a key.")
    inner = default.get(head) if isinstance(default, dict) else None
    return {**node, head: _set(node.get(head, inner), inner, rest, value, key)}
