"""The registry: kind and name -> a component with typed options and a known origin."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

from trlmath.errors import PluginError, RecipeError, TrlmathError, nearest
from trlmath.options import Option, read_options, validate_options
from trlmath.targets import Origin, import_target, is_code, is_path, locate

Kind = Literal["reward", "advantage", "filter", "prompt", "dataset"]
KINDS: tuple[Kind, ...] = ("reward", "advantage", "filter", "prompt", "dataset")
PLURAL: dict[Kind, str] = {kind: f"{kind}s" for kind in KINDS}

# A function that names one of these (or takes **kwargs) is the component; any other makes one.
_CALLED_WITH: dict[Kind, tuple[str, ...]] = {
    "reward": ("completions", "completion_ids", "completion"),
    "advantage": ("rewards",),
    "filter": ("item",),
    "prompt": (),
    "dataset": (),
}


class Register(Protocol):
    """What the ``register_*`` hooks are given."""

    def __call__(self, name: str, target: Any, *, completions: Literal["text", "chat"] = "text") -> None:
        """Offer `target` as `name`.

        `target` is a class (built with the recipe's options), a function (it is the component, unless it
        is a factory: see `Component.is_factory`), a ready object, or ``"module:attr"``, imported only
        when used. `completions` is the shape that a reward reads.
        """


@dataclass(frozen=True)
class Component:
    """One named part.

    Attributes:
        kind: ``reward``, ``advantage``, ``filter``, ``prompt`` or ``dataset``.
        name: what a recipe writes.
        target: what was registered.
        origin: distribution, version and place in its source.
        completions: for rewards, whether completions are text or chat messages.
    """

    kind: Kind
    name: str
    target: Any
    origin: Origin
    completions: Literal["text", "chat"] = "text"

    @property
    def lazy(self) -> bool:
        """True when the target is still only a ``module:attr`` string."""
        return isinstance(self.target, str)

    @cached_property
    def loaded(self) -> Any:
        """The target itself, imported if it was given by name. Raises PluginError."""
        return import_target(self.target) if self.lazy else self.target

    @property
    def is_factory(self) -> bool:
        """True when options make the component: for a class, and for a function that names none of the
        arguments that a component of this kind is called with."""
        if inspect.isclass(self.loaded):
            return True
        if not inspect.isroutine(self.loaded) or hasattr(self.loaded, "moment"):
            return False
        parameters = inspect.signature(self.loaded).parameters.values()
        if any(p.kind is p.VAR_KEYWORD for p in parameters) and self.kind == "reward":
            return False
        return not any(p.name in _CALLED_WITH[self.kind] for p in parameters)

    @property
    def doc(self) -> str:
        """The docstring of a class or function, the attribute ``doc`` of an object; imports a lazy target."""
        if is_code(self.loaded):
            return inspect.getdoc(self.loaded) or ""
        return str(getattr(self.loaded, "doc", ""))

    @property
    def options(self) -> dict[str, Option]:
        """The options by name, read from the factory's signature; imports a lazy target."""
        return read_options(self.loaded) if self.is_factory else {}

    def check(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options converted to their types. Raises RecipeError naming the wrong ones."""
        what = f"{self.kind} {self.name!r} ({self.origin})"
        if not self.is_factory:
            if options:
                raise RecipeError(
                    f"{what} takes no options, but the recipe gives {', '.join(options)}. Remove `options`."
                )
            return {}
        return validate_options(self.loaded, options, what)

    def build(self, options: Mapping[str, Any] | None = None) -> Any:
        """Return the component itself, made with `options`. Raises RecipeError and PluginError."""
        checked = self.check(options or {})
        if not self.is_factory:
            return self.loaded
        try:
            return self.loaded(**checked)
        except TrlmathError:
            raise
        except (TypeError, ValueError) as error:
            raise RecipeError(
                f"{self.kind} {self.name!r} ({self.origin}) refuses its options {checked}: {error}"
            ) from error
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"{self.kind} {self.name!r} ({self.origin}) cannot be built: {type(error).__name__}: {error}"
            ) from error


@dataclass
class Registry:
    """All components of a process.

    Attributes:
        hints: sentences that an unknown-name error adds, e.g. about plugins that failed to import.
    """

    hints: list[str] = field(default_factory=list)
    _components: dict[tuple[Kind, str], Component] = field(default_factory=dict)

    def add(self, component: Component) -> None:
        """Add a component. Raises PluginError naming both distributions if the name is taken."""
        key = (component.kind, component.name)
        if key in self._components:
            first, second = self._components[key].origin, component.origin
            raise PluginError(
                f"two plugins offer the {component.kind} {component.name!r}: {first} and {second}. Uninstall "
                "one of them, or set TRLMATH_PLUGINS to a comma list of the distributions to load."
            )
        self._components[key] = component

    def remove(self, components: Iterable[Component]) -> None:
        """Take components back (of a plugin that failed half way)."""
        for component in components:
            self._components.pop((component.kind, component.name), None)

    def __iter__(self) -> Iterator[Component]:
        """Components sorted by kind, then name."""
        return iter(sorted(self._components.values(), key=lambda c: (KINDS.index(c.kind), c.name)))

    def names(self, kind: Kind) -> list[str]:
        """Names of one kind, sorted."""
        return sorted(name for k, name in self._components if k == kind)

    def resolve(self, kind: Kind, name: str) -> Component:
        """Return the component called `name`: a registered name, ``module:attr`` or ``file.py:attr``.

        Raises:
            PluginError: nothing of that name, or its module cannot be imported.
        """
        if (kind, name) in self._components:
            return self._components[kind, name]
        if is_path(name):
            target = import_target(name)
            if isinstance(target, str):
                raise PluginError(f"{name!r} is the text {target!r}, not a {kind}.")
            return Component(kind, name, target, locate(target))
        elsewhere = [k for k, n in self._components if n == name]
        message = f"no {kind} is called {name!r}."
        if elsewhere:
            message += f" There is a {elsewhere[0]} of that name: write it under the key for {elsewhere[0]}s."
        message += nearest(name, self.names(kind))
        message += (
            f" Available: {', '.join(self.names(kind)) or 'none'}; or write module:attr or file.py:attr."
        )
        raise PluginError(" ".join([message, *self.hints]))


def resolve(kind: Kind, name: str) -> Component:
    """Resolve `name` in the process-wide registry (see `trlmath.plugins.registry`)."""
    from trlmath.plugins import registry

    return registry().resolve(kind, name)
