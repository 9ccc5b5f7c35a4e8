"""Say what is wrong with a recipe: every error at once, by dotted key, with what is allowed."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError

from trlmath.errors import nearest
from trlmath.recipe.schema import Recipe

# Where pydantic's words are those of Python and not of YAML.
_PLAIN = {
    "dict_type": "a mapping, {key: value}",
    "list_type": "a list, [item, ...]",
    "model_type": "a mapping, {key: value}, or a component's name",
    "string_type": "text",
    "tuple_type": "a list, [low, high]",
}


def explain(error: ValidationError, data: Any, root: type[BaseModel] = Recipe, what: str = "a recipe") -> str:
    """Return one line for each error of the validation of `data` against `root`, which is `what`."""
    lines = []
    for item in error.errors(include_url=False):
        loc = [part for part in item["loc"] if part not in ("function-before", "nullable")]
        key = ".".join(str(part) for part in loc)
        if item["type"] == "extra_forbidden":
            lines.append(_unknown_key(loc, key, root, what))
        elif item["type"] == "missing":
            lines.append(f"{key}: is required here and missing.")
        else:
            message = item["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            message = _PLAIN.get(item["type"], message)
            shown = repr(item["input"])
            shown = shown if len(shown) <= 80 else shown[:77] + "..."
            lines.append(f"{key}: got {shown}; allowed: {message}." if key else f"got {shown}; {message}.")
    return "\n".join(lines)


def _unknown_key(loc: list[Any], key: str, root: type[BaseModel], what: str) -> str:
    name, section = str(loc[-1]), ".".join(str(part) for part in loc[:-1])
    model = model_at(loc[:-1], root)
    allowed = keys_of(model)
    tip = nearest(name, allowed)
    if not tip:
        homes = [path for path in all_keys(root) if path.rsplit(".", 1)[-1] == name]
        tip = f" Did you mean {homes[0]!r}?" if homes else tip
    if not tip and not section and root is Recipe:
        tip = f" Arguments of TRL and transformers go under `trainer`: trainer.{name}."
    where = f"`{section}`" if section else what
    return f"{key}: unknown key.{tip} Allowed in {where}: {', '.join(allowed)}."


def keys_of(model: type[BaseModel]) -> list[str]:
    """The keys of a section as a recipe writes them."""
    return [field.alias or name for name, field in model.model_fields.items()]


def model_at(loc: list[Any], root: type[BaseModel] = Recipe) -> type[BaseModel]:
    """The section class at a location such as ``["rewards", 0]``."""
    model = root
    for part in loc:
        if isinstance(part, int):
            continue
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                model = next(_models_in(field.annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def all_keys(model: type[BaseModel] = Recipe, prefix: str = "") -> list[str]:
    """Every dotted key of a recipe, lists without their index."""
    keys = []
    for name, field in model.model_fields.items():
        key = prefix + (field.alias or name)
        keys.append(key)
        for inner in _models_in(field.annotation):
            keys += all_keys(inner, key + ".")
    return keys
