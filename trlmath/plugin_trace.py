"""TRLMATH_TRACE_PLUGINS=1: every hook call on standard error, with its implementations and their answers."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from trlmath.errors import visible

VARIABLE = "TRLMATH_TRACE_PLUGINS"
_SHOWN = 60


def tracing() -> bool:
    """True when the variable is set to anything but nothing and 0."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


def call_traced(hook: str, plugin: str, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call one implementation of a hook, and tell it when tracing."""
    if not tracing():
        return function(**arguments)
    given = ", ".join(f"{name}={short(value)}" for name, value in arguments.items())
    started = time.perf_counter()
    try:
        answer = function(**arguments)
    except BaseException as error:
        _say(f"{hook}({given}) of {plugin} raised {type(error).__name__}: {short(error)}")
        raise
    milliseconds = (time.perf_counter() - started) * 1000
    _say(f"{hook}({given}) of {plugin} returned {short(answer)} in {milliseconds:.1f} ms")
    return answer


def tell_no_implementation(hook: str) -> None:
    """Say that a hook was called and nobody listens, when tracing."""
    if tracing():
        _say(f"{hook}: no plugin implements it")


def short(value: Any) -> str:
    """A value on one line: small ones as they are, collections by their size."""
    if isinstance(value, (list, tuple, dict, set)) and len(value) > 3:
        return f"<{type(value).__name__} of {len(value)}>"
    if inspect.isroutine(value) or inspect.isclass(value):
        return f"<{value.__name__}>"
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"<{type(value).__name__}>"


def _say(text: str) -> None:
    print(visible(f"[plugins] {text}"), file=sys.stderr, flush=True)
