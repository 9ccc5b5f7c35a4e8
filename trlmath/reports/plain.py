"""A terminal that prints text as it is: what data or plugins say is neither markup nor control."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from trlmath.errors import visible


class PlainConsole(Console):
    """A `rich` console without markup; control characters in what it prints are shown, not obeyed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, **options})

    def render_str(self, text: str, **options: Any) -> Any:
        """Every text passes here, cells and titles of tables too."""
        return super().render_str(visible(text), **options)
