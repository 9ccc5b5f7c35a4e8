"""Fixtures for authors of plugins: installed with trlmath, found by pytest through ``pytest11``.

    import trlmath_shout

    def test_it_conforms(check_plugin):
        check_plugin(trlmath_shout)

Nothing of trlmath is imported until a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def check_plugin() -> Callable[..., None]:
    """Return ``check_plugin(module)``: run the conformance suite on all that a plugin module offers.

    `module` is the module or its name; it need not be installed.
    """

    def check(module: Any) -> None:
        from trlmath.conformance import subjects_of_plugin

        subjects = subjects_of_plugin(module)
        assert subjects, f"{getattr(module, '__name__', module)} offers nothing: it has no register_* hook"
        _conclude(subjects)

    return check


@pytest.fixture
def check_component() -> Callable[..., None]:
    """Return ``check_component(kind, name, **options)``: run the suite on one component, by its name.

    `name` is a registered one, ``module:attr`` or ``file.py:attr``.
    """

    def check(kind: Any, name: str, **options: Any) -> None:
        from trlmath.components import resolve
        from trlmath.conformance import Subject
        from trlmath.plugins import module_of

        component = resolve(kind, name)
        _conclude([Subject(component, given=options, module=module_of(component))])

    return check


@pytest.fixture
def offered() -> Callable[..., Any]:
    """Return ``offered(module, kind, name, **options)``: build what a plugin module offers under a name."""

    def build(module: Any, kind: Any, name: str, **options: Any) -> Any:
        from trlmath.plugins import load_alone

        found = load_alone(module)
        assert not found.broken, found.broken[0].traceback
        return found.registry.resolve(kind, name).build(options)

    return build


def _conclude(subjects: Any) -> None:
    from trlmath.conformance import check_subjects

    failed = [report for report in check_subjects(subjects) if report.failures]
    if failed:
        pytest.fail("\n".join(report.to_text(everything=False) for report in failed), pytrace=False)
