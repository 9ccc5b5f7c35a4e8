"""Properties of filters: an answer for every item, a reason for every drop, state that round-trips."""

from __future__ import annotations

import copy
import json
from typing import Any

from trlmath.conformance.core import Broken, Skipped, prop, shown
from trlmath.conformance.subject import Subject
from trlmath.data.lineage import from_json, to_json
from trlmath.errors import TrlmathError
from trlmath.types import Drop, Keep

LONGEST_REASON = 200


def decide(named: Any, items: list[Any]) -> list[Keep | Drop]:
    """All decisions. Raises Broken with the item on which the filter fails."""
    try:
        return named.select(items)
    except TrlmathError as error:
        raise Broken(str(error)) from error


def _stateful(named: Any) -> bool:
    return hasattr(named.function, "state_dict")


@prop("total", "answers Keep or Drop for every item of its moment", "filter")
def total(subject: Subject) -> None:
    named = subject.make()
    items = subject.items(named.moment)
    if len(decide(named, items)) != len(items):
        raise Broken(f"{len(items)} items")
    decide(subject.make(), [])


@prop("reasons", "every drop has a reason: short text that can be written to the ledger", "filter")
def reasons(subject: Subject) -> None:
    named = subject.make()
    for item, decision in zip(
        subject.items(named.moment), decide(named, subject.items(named.moment)), strict=True
    ):
        if not isinstance(decision, Drop):
            continue
        reason = decision.reason
        if not isinstance(reason, str) or not reason.strip() or len(reason) > LONGEST_REASON:
            raise Broken(f"{shown(item)} is dropped with the reason {shown(reason)}")
        if json.loads(json.dumps(reason)) != reason:
            raise Broken(f"the reason {shown(reason)} does not survive JSON")


@prop("order", "the order of the items does not matter, unless it has state", "filter")
def order(subject: Subject) -> None:
    named = subject.make()
    if _stateful(named):
        raise Skipped("it has state")
    items = subject.items(named.moment)
    straight, back = decide(named, items), decide(subject.make(), items[::-1])[::-1]
    for item, one, other in zip(items, straight, back, strict=True):
        if one != other:
            raise Broken(f"{shown(item)}: {one}; in reverse order {other}")


@prop("state", "its state is plain data, and a fresh filter that loads it goes on alike", "filter")
def state(subject: Subject) -> None:
    first = subject.make()
    if not _stateful(first):
        raise Skipped("it has no state")
    items = subject.items(first.moment)
    decide(first, items[: len(items) // 2])
    saved = first.state_dict()
    try:
        again = from_json(json.loads(json.dumps(to_json(saved))))
    except (TypeError, ValueError) as error:
        raise Broken(f"state_dict() is not plain data: {error}") from error
    second = subject.make()
    second.load_state_dict(again)
    rest = items[len(items) // 2 :] + items[: len(items) // 2]
    for item, one, other in zip(rest, decide(first, rest), decide(second, rest), strict=True):
        if one != other:
            raise Broken(f"{shown(item)}: {one}; from the saved state {other}")


@prop("keeps some", "does not drop everything", "filter")
def keeps_some(subject: Subject) -> None:
    named = subject.make()
    decisions = decide(named, subject.items(named.moment))
    if not any(isinstance(decision, Keep) for decision in decisions):
        raise Broken(f"all {len(decisions)} samples are dropped, the first as {shown(decisions[0])}")


@prop("inputs untouched", "changes nothing of what it is given", "filter")
def inputs_untouched(subject: Subject) -> None:
    named = subject.make()
    items = copy.deepcopy(subject.items(named.moment))
    before = copy.deepcopy(items)
    decide(named, items)  # raises what the filter does; it was given copies
    if hasattr(named.function, "select"):
        named.function.select(items)
    else:
        for item in items:
            named.function(item)
    for item, old in zip(items, before, strict=True):
        if item != old:
            raise Broken(f"{shown(old)} became {shown(item)}")
