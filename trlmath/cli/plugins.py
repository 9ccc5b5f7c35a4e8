"""``trlmath plugins list | show | doctor | check | new``: what recipes can name, and whether it is sound."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trlmath.cli.echo import echo, echo_json
from trlmath.components import KINDS, Component
from trlmath.errors import PluginError, TrlmathError, nearest
from trlmath.options import REQUIRED, told_of_option, type_name
from trlmath.plugins import Plugins, discover


@click.group()
def plugins() -> None:
    """List, show, check and make plugins."""


@plugins.command("list", short_help="Show every component, and plugins that failed to load.")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
def list_(kind: str | None, as_json: bool) -> None:
    """Show every component with kind, options and origin, and every plugin that failed to load.

    Exits with 1 when two distributions offer one name.
    """
    found = discover()
    components = [c for c in found.registry if kind in (None, c.kind)]
    if as_json:
        echo_json(_as_data(found, components), indent=2)
    else:
        echo(_as_text(found, components))
    sys.exit(1 if found.conflicts else 0)


@plugins.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), help="Needed when several kinds have that name.")
def show(name: str, kind: str | None) -> None:
    """Show one component: options, origin and documentation."""
    for component in find(name, kind):
        echo(f"{component.kind} {component.name}\n  from {component.origin}")
        # Showing one component may import what it names; listing must not.
        for option in component.options.values():
            needed = "  (required)" if option.default is REQUIRED else ""
            echo(f"  option {option}{needed}")
            told = told_of_option(component.doc, option.name)
            if told:
                echo(f"      {told}")
        echo(_indented(component.doc) + "\n")


@plugins.command()
def doctor() -> None:
    """Say what is wrong with installed plugins, and what to do. Exits with 1 when something is."""
    from trlmath.plugin_doctor import diagnose

    found = discover()
    echo(f"{len(found.working)} plugins work: {', '.join(str(p) for p in found.working)}")
    troubles = diagnose(found)
    for trouble in troubles:
        echo(f"\n{trouble.what}\n  {trouble.advice}")
        if trouble.traceback:
            echo(_indented(trouble.traceback, "    "))
    if not troubles:
        echo("nothing is wrong.")
    sys.exit(1 if troubles else 0)


@plugins.command(short_help="Run the conformance suite on a component or plugin.")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Every component of every plugin, built-ins too.")
@click.option("--kind", type=click.Choice(KINDS), help="Only this kind.")
@click.option(
    "-o", "--option", "options", multiple=True, metavar="KEY=VALUE", help="An option to build with."
)
@click.option("--chat", is_flag=True, help="A reward that reads completion[0]['content'].")
@click.option("--failures", is_flag=True, help="Show only what fails.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text.")
def check(
    name: str | None,
    everything: bool,
    kind: str | None,
    options: tuple[str, ...],
    chat: bool,
    failures: bool,
    as_json: bool,
) -> None:
    """Run the conformance suite on a component, a distribution, module:attr, file.py:attr, or --all.

    Each property passes, or its smallest counterexample is shown. Exits with 1 when one fails.
    """
    from trlmath.conformance import Report, check_subjects

    if (name is None) != everything:
        raise click.UsageError("give one NAME (or distribution), or --all.")
    subjects = _subjects(name, kind, _options_given(options), chat)

    def tell(report: Report) -> None:
        if not as_json and (report.failures or not failures):
            echo(report.to_text(everything=not failures))

    reports = check_subjects(subjects, told=tell)
    broken = discover().broken if everything else []
    failed = sum(len(report.failures) for report in reports)
    if as_json:
        echo_json([report.to_dict() for report in reports], indent=2)
    else:
        checked = sum(len(report.results) for report in reports)
        echo(f"\n{len(reports)} components, {checked} properties, {failed} failures")
        for plugin in broken:
            echo(f"not checked, since it does not load: {plugin} (see `trlmath plugins doctor`)")
    sys.exit(1 if failed or broken else 0)


@plugins.command(short_help="Write a complete plugin distribution to start from.")
@click.argument("name")
@click.option("--kind", type=click.Choice(KINDS), default="reward", show_default=True, help="What it offers.")
@click.option("--into", type=click.Path(path_type=Path), default=Path(), help="Folder to write it into.")
def new(name: str, kind: str, into: Path) -> None:
    """Write a complete plugin distribution called trlmath-NAME, with tests that pass."""
    from trlmath.scaffold import write_plugin

    folder = write_plugin(name, kind, into)  # type: ignore[arg-type]
    echo(
        f"wrote {folder}: README.md says what to change. Next:\n\n"
        f"  pip install -e '{folder}[test]'\n  trlmath plugins list\n  pytest {folder}"
    )


def find(name: str, kind: str | None) -> list[Component]:
    """Components of a name. Raises PluginError with the nearest when there is none."""
    registry = discover().registry
    found = [c for c in registry if c.name == name and kind in (None, c.kind)]
    if not found and ":" in name:
        found = [registry.resolve(kind or "reward", name)]  # type: ignore[arg-type]
    if not found:
        names = {c.name for c in registry if kind in (None, c.kind)}
        if name.endswith(".py"):
            raise PluginError(f"{name!r} is a file: write {name}:NAME with what in it is meant.")
        raise PluginError(
            " ".join([f"no {kind or 'component'} is called {name!r}.{nearest(name, names)}", *registry.hints])
            + " See `trlmath plugins list`."
        )
    return found


def _subjects(name: str | None, kind: str | None, options: dict[str, Any], chat: bool) -> list[Any]:
    from trlmath.conformance import Subject, subjects_of_plugin

    working = discover().working
    chosen = [p for p in working if name is None or p.distribution == name]
    for broken in discover().broken:
        if broken.distribution == name:
            raise PluginError(f"the plugin {broken} failed to load:\n{broken.traceback}")
    found = [
        subject
        for plugin in chosen
        for subject in subjects_of_plugin(plugin.module, plugin.distribution, plugin.version)
        if kind in (None, subject.component.kind)
    ]
    if name is None or chosen:
        return found
    from trlmath.plugins import module_of

    return [
        Subject(component, given=options, module=module_of(component), chat=chat)
        for component in find(name, kind)
    ]


def _options_given(pairs: tuple[str, ...]) -> dict[str, Any]:
    from trlmath.recipe.yamls import parse

    given = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"-o {pair}: write KEY=VALUE.")
        given[key] = parse(value, key)
    return given


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


def _options_as_data(component: Component) -> list[dict[str, Any]] | None:
    """The options as plain data; None where they are not known without importing, or cannot be read."""
    if component.lazy:
        return None
    try:
        options = component.options.values()
    except TrlmathError:  # `_options` has the reason, in the list as text
        return None
    return [
        {
            "name": option.name,
            "type": type_name(option.annotation),
            "required": option.default is REQUIRED,
            "default": _plain(option.default),
            "doc": told_of_option(component.doc, option.name),
        }
        for option in options
    ]


def _plain(value: Any) -> Any:
    """A default as JSON has it, else as Python writes it; null for none."""
    if value is REQUIRED or value is None or isinstance(value, (bool, int, float, str)):
        return None if value is REQUIRED else value
    return repr(value) if value is not ... else "..."


def _as_data(found: Plugins, components: list[Component]) -> dict[str, Any]:
    return {
        "components": [
            {
                "kind": c.kind,
                "name": c.name,
                "options": _options_as_data(c),
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
