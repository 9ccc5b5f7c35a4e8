"""Discovery of plugins by entry point, their provenance, and the isolation of broken ones."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, metadata
from types import ModuleType
from typing import Any, Literal

import pluggy

from trlmath import __version__, hookspecs
from trlmath.components import PLURAL, Component, Kind, Registry
from trlmath.containers import own
from trlmath.errors import PluginError, nearest, say
from trlmath.hookspecs import API, PROJECT
from trlmath.plugin_trace import call_traced, tell_no_implementation
from trlmath.reward_faults import file_of, place_in
from trlmath.targets import Origin, is_code, place_of
from trlmath.time_limit import Overrun, call_within

BUILTIN = "trlmath.builtin"
VARIABLE = "TRLMATH_PLUGINS"


@dataclass(frozen=True)
class Plugin:
    """One plugin: the entry point `name` of `distribution`, whose value is `module`."""

    name: str
    module: str
    distribution: str
    version: str
    traceback: str | None = None

    def __str__(self) -> str:
        return f"{self.distribution} {self.version} (entry point {self.name} = {self.module})"


@dataclass
class Plugins:
    """Everything that discovery found.

    Attributes:
        manager: pluggy's manager with the working plugins, whose ``hook`` calls the observers.
        registry: the components they offer.
        working: plugins that loaded.
        broken: plugins that did not, with the traceback.
        conflicts: one sentence for each name that two distributions offer.
        silenced: (plugin, hook) of observers that have failed in this run and are not called any more.
        tell: shows a line about them; a run sets its display's.
        limit: seconds that a hook may take, None for no limit; a run sets its recipe's.
    """

    manager: pluggy.PluginManager
    registry: Registry = field(default_factory=Registry)
    working: list[Plugin] = field(default_factory=list)
    broken: list[Plugin] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    silenced: set[tuple[str, str]] = field(default_factory=set)
    tell: Callable[[str], None] = say
    limit: float | None = 300.0


@cache
def discover() -> Plugins:
    """Load the plugins that ``TRLMATH_PLUGINS`` allows; never raises for what a plugin does wrong.

    Raises PluginError when ``TRLMATH_PLUGINS`` names a distribution that offers no plugin.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    found = Plugins(manager)
    _load(found, Plugin("builtin", BUILTIN, "trlmath", __version__), lambda: import_module(BUILTIN))
    for point in _allowed(metadata.entry_points(group=PROJECT)):
        if point.value != BUILTIN and point.dist is not None:
            _load(found, Plugin(point.name, point.value, point.dist.name, point.dist.version), point.load)
    for broken in found.broken:
        found.registry.hints.append(
            f"The plugin {broken} failed to load, so what it offers is unknown: see `trlmath plugins list`."
        )
    return found


def load_alone(module: str | ModuleType, distribution: str = "", version: str = "") -> Plugins:
    """Load one plugin module by itself, installed or not: what `plugins check` and tests look at.

    Args:
        module: its name, or the module.
        distribution, version: what to call it; default the module's name.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    found = Plugins(manager)
    name = module if isinstance(module, str) else module.__name__
    plugin = Plugin(name, name, distribution or name, version or "(not installed)")
    _load(found, plugin, lambda: import_module(name) if isinstance(module, str) else module)
    return found


def module_of(component: Component) -> str | None:
    """The plugin module that offers a registered component; None for ``module:attr`` and ``file.py:attr``."""
    key = (component.kind, component.name)
    for plugin in discover().working:
        if (component.origin.distribution, component.origin.version) == (plugin.distribution, plugin.version):
            offers = {(c.kind, c.name) for c in load_alone(plugin.module).registry}
            if key in offers:
                return plugin.module
    return None


def registry() -> Registry:
    """Return the process-wide registry. Raises PluginError when two distributions offer one name."""
    found = discover()
    if found.conflicts:
        raise PluginError("\n".join(found.conflicts))
    return found.registry


def plugin_manager() -> pluggy.PluginManager:
    """Return pluggy's manager of the working plugins."""
    return discover().manager


def notify(hook: str, **arguments: Any) -> list[Any]:
    """Call an observer hook of every plugin and return the answers that are not None.

    An implementation that fails is told once, and not called again until the next run starts.
    """
    found, answers = discover(), []
    if hook == "run_started":
        found.silenced.clear()
    for implementation in _implementations(hook):
        observer = (str(implementation.plugin_name), hook)
        if observer in found.silenced:
            continue
        try:
            answers.append(_call(hook, implementation, arguments))
        except PluginError as error:
            found.silenced.add(observer)
            found.tell(f"plugin   {error} It is not called again in this run, which goes on.")
    return [answer for answer in answers if answer is not None]


def ask(hook: str, **arguments: Any) -> list[Any]:
    """As `notify`, for answers that go into a page: an error stands in the place of an answer."""
    answers: list[Any] = []
    for implementation in _implementations(hook):
        try:
            answers.append(_call(hook, implementation, arguments))
        except PluginError as error:
            answers.append(error)
    return [answer for answer in answers if answer is not None]


def decide(hook: str, **arguments: Any) -> Any:
    """Return the first answer of a deciding hook that is not None, plugins loaded last being asked first.

    Raises PluginError naming the plugin whose implementation raised.
    """
    answers = (_call(hook, implementation, arguments) for implementation in _implementations(hook))
    return next((answer for answer in answers if answer is not None), None)


def _implementations(hook: str) -> list[pluggy.HookImpl]:
    implementations = getattr(plugin_manager().hook, hook).get_hookimpls()
    if not implementations:
        tell_no_implementation(hook)
    return list(reversed(implementations))


def _call(hook: str, implementation: pluggy.HookImpl, arguments: dict[str, Any]) -> Any:
    plugin, function = str(implementation.plugin_name), implementation.function
    who, way_out = f"the hook {hook} of plugin {plugin}", f"leave its distribution out of {VARIABLE}"
    # of its own: what one does to them, neither the next nor the run must see
    wanted = {name: own(arguments[name]) for name in implementation.argnames}
    try:
        return call_within(discover().limit, who, lambda: call_traced(hook, plugin, function, wanted))
    except Overrun as error:
        raise PluginError(
            f"{who} gave no answer within {error.seconds:g} s (checks.reward_timeout)."
            f"{place_in(error.frames, file_of(function))} To run without it, {way_out}."
        ) from None
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{who} raised {type(error).__name__}: {error}. To run without it, {way_out}."
        ) from error


def _allowed(points: Iterable[metadata.EntryPoint]) -> list[metadata.EntryPoint]:
    """Apply the variable: unset, all; empty, none; a comma list, only those distributions."""
    points = sorted(points, key=lambda p: (p.dist.name if p.dist else "", p.name))
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return points
    names = [_normal(name) for name in wanted.split(",") if name.strip()]
    offered = {_normal(p.dist.name) for p in points if p.dist} | {"trlmath"}
    for name in names:
        if name not in offered:
            raise PluginError(
                f"{VARIABLE}={wanted!r} names {name!r}, which offers no trlmath plugin."
                f"{nearest(name, offered)} "
                f"Installed: {', '.join(sorted(offered))}."
            )
    return [p for p in points if p.dist and _normal(p.dist.name) in names]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _load(found: Plugins, plugin: Plugin, load: Callable[[], Any]) -> None:
    """Import, register and collect one plugin; on any failure keep its traceback instead."""
    label = str(plugin)
    added: list[Component] = []
    module = None
    try:
        module = load()
        _refuse_other_api(module)
        found.manager.register(module, name=label)
        _refuse_unknown_hooks(found.manager, module)
        _collect(found, plugin, module, added)
    except (Exception, SystemExit):  # noqa: BLE001  (kept, shown, and raised when a recipe needs it)
        if module is not None and found.manager.has_plugin(label):
            found.manager.unregister(name=label)
        found.registry.remove(added)
        found.broken.append(
            Plugin(plugin.name, plugin.module, plugin.distribution, plugin.version, traceback.format_exc())
        )
    else:
        found.working.append(plugin)


def _refuse_other_api(module: Any) -> None:
    wanted = getattr(module, "trlmath_api", API)
    if wanted != API:
        newer = isinstance(wanted, int) and wanted > API
        way_out = "upgrade trlmath" if newer else "install a release of the plugin written for it"
        raise PluginError(
            f"it declares trlmath_api = {wanted!r}, and trlmath {__version__} has API {API}: {way_out}."
        )


def _refuse_unknown_hooks(manager: pluggy.PluginManager, module: Any) -> None:
    specified = [name for name in dir(hookspecs) if hasattr(getattr(hookspecs, name), f"{PROJECT}_spec")]
    for caller in manager.get_hookcallers(module) or []:
        if not caller.has_spec():
            raise PluginError(f"there is no hook {caller.name!r}.{nearest(caller.name, specified)}")
        if any(i.hookwrapper or i.wrapper for i in caller.get_hookimpls() if i.plugin is module):
            raise PluginError(f"hook {caller.name!r} is a wrapper: a plugin may not wrap what others do.")


def _collect(found: Plugins, plugin: Plugin, module: Any, added: list[Component]) -> None:
    """Call the plugin's register_* hooks; a name taken by another distribution becomes a conflict."""
    for kind in PLURAL:
        hook = getattr(found.manager.hook, f"register_{PLURAL[kind]}")
        for implementation in hook.get_hookimpls():
            if implementation.plugin is module:
                offers = {"register": _registrar(found, plugin, kind, added, implementation.function)}
                wanted = {name: offers[name] for name in implementation.argnames}
                call_traced(f"register_{PLURAL[kind]}", str(plugin), implementation.function, wanted)


def _registrar(
    found: Plugins, plugin: Plugin, kind: Kind, added: list[Component], hook: Callable[..., Any]
) -> Callable[..., None]:
    def register(name: str, target: Any, *, completions: Literal["text", "chat"] = "text") -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            raise PluginError(f"{name!r} cannot be a {kind}'s name: use letters, digits, '_', '-' and '.'.")
        if isinstance(target, str) and ":" not in target:
            raise PluginError(f"{kind} {name!r}: the target {target!r} is not of the form module:attr.")
        # A ready object has no line of its own: the hook that offers it is the place to look.
        place = place_of(target if is_code(target) or isinstance(target, str) else hook)
        origin = Origin(plugin.distribution, plugin.version, place)
        component = Component(kind, name, target, origin, completions)
        mine = any(c.kind == kind and c.name == name for c in added)
        try:
            found.registry.add(component)
        except PluginError as error:
            if mine:
                raise
            found.conflicts.append(str(error))
        else:
            added.append(component)

    return register
