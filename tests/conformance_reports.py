"""One component through the conformance suite: what the suite's own tests share."""

from __future__ import annotations

from trlmath.components import Component
from trlmath.conformance import Subject, check_subjects
from trlmath.targets import Origin

HERE = Origin("trlmath-x", "1.0", "x.py:1")


def report_of(kind, target, name="it", clean=False, **fields):
    (report,) = check_subjects([Subject(Component(kind, name, target, HERE), **fields)], clean=clean)
    return {result.property: result for result in report.results}


def broken(kind, target, **fields):
    """Names of the properties that fail, with their counterexamples."""
    return {name: r.detail for name, r in report_of(kind, target, **fields).items() if r.status == "fail"}
