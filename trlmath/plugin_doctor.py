"""What is wrong with installed plugins, and what to do about it: `trlmath plugins doctor`."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement

from trlmath.hookspecs import PROJECT
from trlmath.plugins import Plugin, Plugins


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong: what, what to do, and the traceback when there is one."""

    what: str
    advice: str
    traceback: str = ""


def diagnose(found: Plugins) -> list[Trouble]:
    """Return everything that is wrong with what discovery found, worst first."""
    troubles = [Trouble(conflict, "No run starts until this is solved.") for conflict in found.conflicts]
    troubles += [_broken(plugin) for plugin in found.broken]
    for plugin in [*found.working, *found.broken]:
        troubles += _requirements(plugin)
    return troubles + _twice(found)


def _broken(plugin: Plugin) -> Trouble:
    text = plugin.traceback or ""
    last = text.strip().splitlines()[-1] if text.strip() else "no traceback"
    missing = re.search(r"No module named '([\w.]+)'", last)
    if missing:
        advice = f"Install what has the module {missing[1].split('.')[0]!r}, or uninstall the plugin."
    elif "trlmath_api" in last:
        advice = "It was written for another plugin API of trlmath, see the last line."
    else:
        advice = "Report it to its author with the traceback below, or uninstall it."
    return Trouble(f"{plugin} does not load: {last}", advice, text)


def _requirements(plugin: Plugin) -> list[Trouble]:
    """Declared dependencies that are not there, or there in another version."""
    troubles = []
    try:
        declared = metadata.requires(plugin.distribution) or []
    except metadata.PackageNotFoundError:
        return []
    for text in declared if plugin.distribution != PROJECT else ():
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            have = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            what = f"{plugin} needs {need}, which is not installed."
        else:
            if need.specifier.contains(have, prereleases=True):
                continue
            what = f"{plugin} needs {need}, and {need.name} {have} is installed."
        troubles.append(Trouble(what, f"pip install '{need}'"))
    return troubles


def _twice(found: Plugins) -> list[Trouble]:
    """Distributions that lie on the path in two versions: only the first is used."""
    ours = {plugin.distribution.lower() for plugin in [*found.working, *found.broken]}
    versions: dict[str, list[str]] = defaultdict(list)
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"]).lower()
        if name in ours and distribution.version not in versions[name]:
            versions[name].append(distribution.version)
    return [
        Trouble(
            f"{name} is installed in the versions {' and '.join(each)}; {each[0]} is used.",
            f"pip uninstall {name} until none is left, then install the one you want.",
        )
        for name, each in versions.items()
        if len(each) > 1
    ]
