"""Properties of every kind: a clean process, documented options, picklable, deterministic, quiet."""

from __future__ import annotations

import math
import pickle
import re
from typing import Any

from trlmath.components import KINDS, Kind
from trlmath.conformance.core import Broken, Skipped, prop, shown
from trlmath.conformance.subject import Subject

LOAD_SECONDS = 1.0


def _probe(subject: Subject) -> dict[str, Any]:
    if subject.probe is None:
        raise Skipped("no clean process was asked")
    if "error" in subject.probe:
        raise Broken(f"in a clean process: {subject.probe['error']}")
    return subject.probe


@prop("clean process", "loads in a clean process and answers there as here", *KINDS)
def clean_process(subject: Subject) -> None:
    there, here = _probe(subject)["answer"], subject.fingerprint()
    if not same(there, here):
        raise Broken(f"here {shown(here)}; in a process of its own {shown(there)}")


@prop("quick import", "its module imports in under a second and brings no torch along", *KINDS)
def quick_import(subject: Subject) -> None:
    probe = _probe(subject)
    if subject.module is None:
        raise Skipped("no plugin: nothing is imported until a recipe names it")
    kinds: list[Kind] = probe["kinds"]
    # An advantage works on tensors; everything else must not make `plugins list` wait for torch.
    if probe["heavy"] and "advantage" not in kinds:
        raise Broken(
            f"importing {subject.module} imports {', '.join(probe['heavy'])}; import it where it is used"
        )
    if not probe["heavy"] and probe["load_seconds"] > LOAD_SECONDS:
        raise Broken(f"importing {subject.module} took {probe['load_seconds']:.2f} s of processor time")


@prop("documented", "has a docstring; every option is typed and named in it", *KINDS)
def documented(subject: Subject) -> None:
    component = subject.component
    if not component.doc.strip():
        raise Broken(f"{component.name} has no docstring (a ready object: no attribute `doc`)")
    for option in component.options.values():
        if option.annotation is Any:
            raise Broken(f"option {option.name!r} has no type annotation")
        if not re.search(rf"\b{re.escape(option.name)}\b", component.doc):
            raise Broken(f"option {option} is not mentioned in the docstring")


@prop("picklable", "can be pickled, as launchers and data loaders do", *KINDS)
def picklable(subject: Subject) -> None:
    built = subject.component.build(subject.options)
    try:
        again = pickle.loads(pickle.dumps(built))  # noqa: S301  (bytes made on this line)
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    if type(again) is not type(built):
        raise Broken(f"a {type(built).__name__} comes back as a {type(again).__name__}")


@prop("deterministic", "gives equal answers to equal input, from one object and from a fresh one", *KINDS)
def deterministic(subject: Subject) -> None:
    first, second = subject.fingerprint(), subject.fingerprint()
    if not same(first, second):
        raise Broken(f"once {shown(first)}, then {shown(second)}")


@prop("no network", "opens no connection and looks no host up", *KINDS)
def no_network(subject: Subject) -> None:
    events = _probe(subject)["network"]
    if events:
        raise Broken(f"while it worked: {events[0]}")


@prop("no writes", "writes, renames and removes no file", *KINDS)
def no_writes(subject: Subject) -> None:
    events = _probe(subject)["writes"]
    if events:
        raise Broken(f"while it worked: {events[0]}")


def same(one: Any, other: Any) -> bool:
    """Equality of plain data, numbers to 1e-6 of each other; NaN equals NaN."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or abs(one - other) <= 1e-6 * max(1.0, abs(one), abs(other))
    return one == other
