"""Copies of plain containers: what a component does to its input, nobody else is to see."""

from __future__ import annotations

from typing import Any


def copied(value: Any) -> Any:
    """A copy of lists, dicts and sets, and of those in them; anything else as it is."""
    if type(value) is list:
        return [copied(item) for item in value]
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return set(value) if type(value) is set else value
