"""Run the suite: each property of each subject, one clean process a plugin, and a report of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from trlmath.conformance import (  # noqa: F401  (importing them fills PROPERTIES)
    advantage_properties,
    common,
    filter_properties,
    reward_properties,
    source_properties,
)
from trlmath.conformance.core import PROPERTIES, Broken, Property, Result, Skipped, hypothesis
from trlmath.conformance.probe import ask
from trlmath.conformance.subject import Subject
from trlmath.errors import PluginError, TrlmathError, nearest

_MARKS = {"pass": "pass", "fail": "FAIL", "skip": "  - ", "waived": "wvd "}


@dataclass(frozen=True)
class Report:
    """What the suite found about one component."""

    subject: str
    kind: str
    name: str
    results: tuple[Result, ...]

    @property
    def failures(self) -> list[Result]:
        """The properties that do not hold."""
        return [result for result in self.results if result.status == "fail"]

    def to_text(self, everything: bool = True) -> str:
        """One line a property, with the counterexample under those that fail."""
        lines = [self.subject]
        for result in self.results:
            if not everything and result.status != "fail":
                continue
            lines.append(f"  {_MARKS[result.status]}  {result.property}: {result.claim}")
            if result.detail:
                lines.append(f"          {result.detail}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "kind": self.kind,
            "name": self.name,
            "subject": self.subject,
            "results": [vars(result) for result in self.results],
        }


def check_subjects(
    subjects: Sequence[Subject], clean: bool = True, told: Callable[[Report], None] | None = None
) -> list[Report]:
    """Check every subject.

    Args:
        clean: also ask a clean process, one for each plugin module (a few seconds).
        told: called with each report as it is ready.

    Raises:
        PluginError: hypothesis is not installed, or a subject cannot be tried at all.
    """
    hypothesis()
    if clean:
        by_module: dict[str | None, list[Subject]] = {}
        for subject in subjects:
            by_module.setdefault(subject.module, []).append(subject)
        for of_module in by_module.values():
            ask(of_module)
    reports = []
    for subject in subjects:
        reports.append(_check(subject))
        if told:
            told(reports[-1])
    return reports


def _check(subject: Subject) -> Report:
    of_kind = [p for p in PROPERTIES if subject.component.kind in p.kinds]
    waived = dict(subject.hints.get("waive", {}))
    known = [p.name for p in of_kind]
    for name in waived:
        if name not in known:
            raise PluginError(
                f"{subject}: its `conformance` waives {name!r}, which is no property of a "
                f"{subject.component.kind}.{nearest(name, known)} Properties: {', '.join(known)}."
            )
    with redirect_stdout(sys.stderr):  # what a component prints is not the report
        results = _tried(subject, of_kind, waived)
    return Report(str(subject), subject.component.kind, subject.component.name, results)


def _tried(subject: Subject, of_kind: list[Property], waived: dict[str, str]) -> tuple[Result, ...]:
    if subject.probe and "dead" in subject.probe:  # it would end, or stop, this process too
        return (Result("tried", "can be built and called", "fail", subject.probe["dead"]),)
    try:
        subject.make()
    except (TrlmathError, TypeError) as error:
        return (Result("tried", "can be built and called", "fail", str(error)),)
    return tuple(_result(subject, p, waived) for p in of_kind)


def _result(subject: Subject, claim: Property, waived: dict[str, str]) -> Result:
    if claim.name in waived:
        return Result(claim.name, claim.claim, "waived", f"its author says: {waived[claim.name]}")
    try:
        claim.check(subject)
    except Skipped as reason:
        return Result(claim.name, claim.claim, "skip", str(reason))
    except Broken as broken:
        return Result(claim.name, claim.claim, "fail", str(broken))
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a component may raise anything; it is the finding)
        return Result(claim.name, claim.claim, "fail", f"{type(error).__name__}: {error}")
    return Result(claim.name, claim.claim, "pass")
