"""Properties, their results, and the search for the smallest counterexample."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from trlmath.components import Kind
from trlmath.errors import PluginError

T = TypeVar("T")
EXAMPLES = 25
SECONDS = 10.0


class Broken(AssertionError):
    """A property does not hold; the text is the counterexample."""


class Skipped(Exception):
    """A property does not apply to this component; the text says why."""


@dataclass(frozen=True)
class Property:
    """One claim about a component.

    Attributes:
        name: short, for waivers and reports.
        claim: the sentence that must be true.
        kinds: of components it is about.
        check: takes a `Subject`; raises Broken or Skipped.
    """

    name: str
    claim: str
    kinds: tuple[Kind, ...]
    check: Callable[[Any], None]


@dataclass(frozen=True)
class Result:
    """What became of one property: ``pass``, ``fail`` (with the counterexample), ``skip`` or ``waived``."""

    property: str
    claim: str
    status: Literal["pass", "fail", "skip", "waived"]
    detail: str = ""


PROPERTIES: list[Property] = []


def prop(name: str, claim: str, *kinds: Kind) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Add the decorated check to the suite."""

    def add(check: Callable[[Any], None]) -> Callable[[Any], None]:
        PROPERTIES.append(Property(name, claim, kinds, check))
        return check

    return add


def hypothesis() -> Any:
    """Return the hypothesis package. Raises PluginError saying how to get it."""
    try:
        import hypothesis as package
    except ModuleNotFoundError as error:
        raise PluginError(
            "`trlmath plugins check` needs hypothesis, which is not installed: pip install 'trlmath[check]'."
        ) from error
    return package


def for_all(strategy: Any, check: Callable[[Any], None], examples: int = EXAMPLES) -> None:
    """Call `check` on values of a hypothesis strategy, the same ones on every run.

    Raises Broken for the smallest value at fault that was found.
    """
    package = hypothesis()
    settings = package.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=list(package.HealthCheck),
        phases=(package.Phase.generate, package.Phase.shrink),
    )

    def run(value: Any) -> None:
        check(value)

    try:
        settings(package.given(strategy)(run))()
    except package.errors.Flaky as error:
        causes = [str(e) for e in getattr(error, "exceptions", ()) if isinstance(e, Broken)]
        raise Broken(
            "fails on some calls and holds on others with the same input"
            + (f"; once: {causes[0]}" if causes else "")
        ) from error


def bounded(function: Callable[[], T], seconds: float, what: str) -> T:
    """Return `function()`, called off the main thread. Raises Broken when it takes longer than `seconds`."""
    answer: list[Any] = []

    def work() -> None:
        try:
            answer.append((True, function()))
        except BaseException as error:  # noqa: BLE001  (raised again in the caller's thread)
            answer.append((False, error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not answer:
        raise Broken(f"no answer within {seconds:g} s for {what}")
    fine, value = answer[0]
    if fine:
        return value
    raise value


def shown(value: Any, most: int = 300) -> str:
    """A value as a counterexample prints it: one line, ASCII, shortened in the middle."""
    text = ascii(value)
    return text if len(text) <= most else f"{text[: most // 2]} [... {len(text)} characters] {text[-40:]}"
