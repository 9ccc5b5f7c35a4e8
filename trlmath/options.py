"""Typed options of a component: read from its signature, converted and checked by pydantic."""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, create_model

from trlmath.errors import PluginError, RecipeError, nearest

REQUIRED = object()


@dataclass(frozen=True)
class Option:
    """One option: its type, and its default (``REQUIRED`` when there is none)."""

    name: str
    annotation: Any
    default: Any

    def __str__(self) -> str:
        kind = "" if self.annotation is Any else f": {type_name(self.annotation)}"
        shown = "..." if self.default is ... else repr(self.default)
        return f"{self.name}{kind}" + ("" if self.default is REQUIRED else f" = {shown}")


def told_of_option(doc: str, name: str) -> str:
    """What a docstring says of an option: its line under ``Args:``, else the first sentence that names it."""
    line = re.search(rf"^( *){re.escape(name)}: (.*(?:\n\1 +\S.*)*)", doc, re.MULTILINE)
    if line:
        return " ".join(line[2].split())
    paragraphs = re.split(r"\n\s*\n", doc)
    sentences = [s for p in paragraphs for s in re.split(r"(?<=[.;])\s+(?!\d)", " ".join(p.split()))]
    marked = [s for s in sentences if re.search(rf"`{re.escape(name)}\b", s)]
    plain = [s for s in sentences if re.search(rf"\b{re.escape(name)}\b", s)]
    return next(iter([*marked, *plain]), "")


def type_name(annotation: Any) -> str:
    """Return a short name of a type: ``int | None``, ``'strict' | 'reference'``."""
    if typing.get_origin(annotation) is typing.Literal:
        return " | ".join(repr(value) for value in typing.get_args(annotation))
    if typing.get_origin(annotation) is typing.Annotated:
        return type_name(typing.get_args(annotation)[0])
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation).replace("typing.", "")


def read_options(factory: Callable[..., Any]) -> dict[str, Option]:
    """Return the keyword options of a class or factory function, in order.

    Raises PluginError when a type hint cannot be resolved or a parameter cannot be given by keyword.
    """
    hinted = factory.__init__ if inspect.isclass(factory) else factory  # type: ignore[misc]
    try:
        hints = typing.get_type_hints(hinted, include_extras=True)
    except Exception as error:
        raise PluginError(f"the type hints of {factory!r} cannot be resolved: {error}") from error
    options = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise PluginError(f"{factory!r}: option {parameter.name!r} is positional-only; name it instead")
        default = REQUIRED if parameter.default is parameter.empty else _default(parameter.default)
        options[parameter.name] = Option(parameter.name, hints.get(parameter.name, Any), default)
    return options


def _default(value: Any) -> Any:
    # A dataclass shows a default_factory in its signature as a private marker that names the factory.
    return value if "HAS_DEFAULT_FACTORY" not in type(value).__name__.upper() else ...


def validate_options(factory: Callable[..., Any], given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return `given` converted to the factory's types, leaving defaults to the factory.

    Raises RecipeError: an unknown option (with the nearest), a wrong type, a missing one.
    """
    options = read_options(factory)
    unknown = [name for name in given if name not in options]
    if unknown:
        allowed = ", ".join(str(option) for option in options.values()) or "none"
        raise RecipeError(
            f"{what} has no option {unknown[0]!r}.{nearest(unknown[0], options)} Its options: {allowed}."
        )
    for name, value in given.items():
        # pydantic would take true for 1
        if isinstance(value, bool) and options[name].annotation in (int, float):
            raise RecipeError(f"{what}: option {name!r} is {value}; a number is needed ({options[name]}).")
    fields: dict[str, Any] = {}
    for option in options.values():
        if option.default is REQUIRED or option.name in given:
            # A private alias: option names that pydantic reserves (copy, json, model_...) stay usable.
            fields[f"option_{option.name}"] = (option.annotation, Field(alias=option.name))
    model = create_model("Options", __config__=ConfigDict(arbitrary_types_allowed=True), **fields)
    try:
        checked = model.model_validate(dict(given))
    except ValidationError as error:
        raise RecipeError(_explain(error, options, given, what)) from error
    values = {name: getattr(checked, f"option_{name}") for name in given}
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise RecipeError(f"{what}: option {name!r} is {value}; give a finite number.")
    return values


def _explain(error: ValidationError, options: dict[str, Option], given: Mapping[str, Any], what: str) -> str:
    parts = []
    for item in error.errors(include_url=False):
        name = str(item["loc"][0])
        if item["type"] == "missing" and name not in given:
            parts.append(f"option {options[name]} is required")
        else:
            parts.append(f"option {name!r} is {given[name]!r}; {item['msg'].lower()} ({options[name]})")
    return f"{what}: {'; '.join(parts)}."
