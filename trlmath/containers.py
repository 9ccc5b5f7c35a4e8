"""Copies of plain containers and records: what a plugin does to its input, nobody else is to see."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any


def copied(value: Any) -> Any:
    """A copy of lists, dicts and sets, and of those in them; anything else as it is."""
    if type(value) is list:
        return [copied(item) for item in value]
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return set(value) if type(value) is set else value


def own(value: Any) -> Any:
    """As `copied`, of dataclasses and tuples of them too, as groups and reports; what needs no copy stays."""
    if type(value) is list:
        return [own(item) for item in value]
    if type(value) is tuple:
        return tuple(own(item) for item in value) if value and is_dataclass(value[0]) else value
    if not is_dataclass(value) or isinstance(value, type):
        return copied(value)
    held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    copies = {name: own(item) for name, item in held.items()}
    changed = {name: copy for name, copy in copies.items() if copy is not held[name]}
    return replace(value, **changed) if changed else value
