"""``trlmath plugins list | show``: every component with kind, options and origin; broken plugins too."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from trlmath.components import KINDS, Component
from trlmath.errors import PluginError, TrlmathError, nearest
from trlmath.plugins import Plugins, discover


@click.group()
def plugins() -> None:
    """List and show components and the plugins that offer them."""


@plugins.command("list", short_help="Show every component, and plugins that failed to load.")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
def list_(kind: str | None, as_json: bool) -> None:
    """Show every component with kind, options and origin, and every plugin that failed to load.

    Exits with 1 when two distributions offer one name.
    """
    found = discover()
    components = [c for c in found.registry if kind in (None, c.kind)]
    click.echo(json.dumps(_as_data(found, components), indent=2) if as_json else _as_text(found, components))
    sys.exit(1 if found.conflicts else 0)


@plugins.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), help="Needed when several kinds have that name.")
def show(name: str, kind: str | None) -> None:
    """Show one component: options, origin and documentation."""
    registry = discover().registry
    found = [c for c in registry if c.name == name and kind in (None, c.kind)]
    if not found and ":" in name:
        found = [registry.resolve(kind or "reward", name)]  # type: ignore[arg-type]
    if not found:
        names = {c.name for c in registry}
        raise PluginError(
            " ".join([f"no component is called {name!r}.{nearest(name, names)}", *registry.hints])
            + " See `trlmath plugins list`."
        )
    for component in found:
        click.echo(f"{component.kind} {component.name}\n  from {component.origin}")
        # Showing one component may import what it names; listing must not.
        for option in component.options.values():
            click.echo(f"  option {option}")
        click.echo(_indented(component.doc) + "\n")


def _options(component: Component) -> list[str]:
    """The options as text; a lazy component's are known only once it is imported."""
    if component.lazy:
        return []
    try:
        return [str(option) for option in component.options.values()]
    except TrlmathError as error:
        return [f"unreadable: {error}"]


def _as_text(found: Plugins, components: list[Component]) -> str:
    lines = []
    for kind in KINDS:
        of_kind = [c for c in components if c.kind == kind]
        if of_kind:
            lines.append(f"{kind}s")
        for component in of_kind:
            options = ", ".join(_options(component))
            lines.append(f"  {component.name}" + (f"  ({options})" if options else ""))
            lines.append(f"      {component.origin}")
    lines += ["", "plugins", *(f"  {plugin}" for plugin in found.working)]
    if found.broken:
        lines += ["", "broken plugins (a run fails only if its recipe names one of their components)"]
    for plugin in found.broken:
        lines += [f"  {plugin}", _indented(plugin.traceback or "", "    ")]
    if found.conflicts:
        lines += ["", "conflicts (no run starts until they are solved)", *(f"  {c}" for c in found.conflicts)]
    return "\n".join(lines)


def _as_data(found: Plugins, components: list[Component]) -> dict[str, Any]:
    return {
        "components": [
            {
                "kind": c.kind,
                "name": c.name,
                "options": _options(c),
                "distribution": c.origin.distribution,
                "version": c.origin.version,
                "place": c.origin.place,
            }
            for c in components
        ],
        "broken": [{"plugin": str(p), "traceback": p.traceback} for p in found.broken],
        "conflicts": found.conflicts,
    }


def _indented(text: str, indent: str = "  ") -> str:
    return "\n".join(indent + line if line else "" for line in text.splitlines())
