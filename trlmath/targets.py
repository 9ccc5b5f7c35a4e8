"""``module:attr`` and ``file.py:attr``: import what a name points to, and tell where it came from."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from trlmath.errors import PluginError, nearest


@dataclass(frozen=True)
class Origin:
    """Where a component comes from: distribution, its version, and ``file:line`` (or ``module:attr``)."""

    distribution: str | None
    version: str | None
    place: str

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}, {self.place}" if self.distribution else self.place


def is_path(name: str) -> bool:
    """True for ``module:attr`` and ``file.py:attr``, as opposed to a registered name."""
    return ":" in name


def import_target(target: str) -> Any:
    """Import ``module:attr`` or ``file.py:attr``. Raises PluginError that says which half is wrong."""
    where, _, attr = target.rpartition(":")
    if not where or not attr:
        raise PluginError(f"{target!r} is not of the form module:attr or file.py:attr.")
    module = _import_file(where, target) if where.endswith(".py") else _import_module(where, target)
    found: Any = module
    for part in attr.split("."):
        if not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise PluginError(f"{target!r}: {where} has no attribute {part!r}.{nearest(part, public)}")
        found = getattr(found, part)
    return found


def _import_module(name: str, target: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        tip = "" if missing == name.split(".")[0] else f" (it needs {missing!r})"
        raise PluginError(
            f"{target!r}: module {name!r} cannot be imported{tip}: {error}. Install the package that has it, "
            "or give a file: path/to/file.py:attr."
        ) from error
    except (Exception, SystemExit) as error:
        raise PluginError(f"{target!r}: importing {name!r} raised {type(error).__name__}: {error}") from error


def _import_file(file: str, target: str) -> ModuleType:
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise PluginError(
            f"{target!r}: there is no file {path}. Give a path relative to where you start the run."
        )
    # The name carries the path, so that two files of one name do not replace each other.
    name = f"trlmath_file_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{target!r}: {path} cannot be imported as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while the body runs
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise PluginError(f"{target!r}: importing {path} raised {type(error).__name__}: {error}") from error
    return module


def place_of(target: Any) -> str:
    """Return ``file:line`` of a target, ``module:attr`` of one not yet imported, else its module."""
    if isinstance(target, str):
        return target
    code = inspect.unwrap(target) if is_code(target) else type(target)
    try:
        file, line = inspect.getsourcefile(code), inspect.getsourcelines(code)[1]
    except (OSError, TypeError):
        file = None
    # Compiled, or made at run time: there is no source to point at.
    return f"{file}:{line}" if file else str(getattr(code, "__module__", code))


def is_code(target: Any) -> bool:
    """True for a class or a function, which have a place in a source file; False for a ready object."""
    return inspect.isclass(target) or inspect.isroutine(target)


def locate(target: Any) -> Origin:
    """Return the origin of an imported target, with the distribution that its module belongs to."""
    code = target if is_code(target) else type(target)
    return Origin(*_distribution_of(str(code.__module__)), place_of(target))


@cache
def _distribution_of(module: str) -> tuple[str | None, str | None]:
    owners = metadata.packages_distributions().get(module.split(".")[0], [])
    if len(set(owners)) > 1:  # a namespace package: the owner is the one that has the file
        stem = module.replace(".", "/")
        wanted = (f"{stem}.py", f"{stem}/__init__.py")
        having = [o for o in owners if any(str(file) in wanted for file in metadata.files(o) or ())]
        owners = having or owners
    return (owners[0], metadata.version(owners[0])) if owners else (None, None)
