"""Group filters: decided once, on gathered rollouts, and obeyed alike by every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate.utils import broadcast_object_list

from trlmath.data.filtering import LedgerEntry, NamedFilter, apply_filters
from trlmath.errors import TrlmathError
from trlmath.types import Group


def decide(filters: Sequence[NamedFilter], groups: Sequence[Group], accelerator: Any) -> list[LedgerEntry]:
    """Return the ledger entries (with the group's number as ``index``) of every group to drop.

    The main process decides and tells the others, so that a filter with state or chance cannot make
    processes disagree on how many rows a step has (they would wait for each other for ever).
    """
    answer: list[Any] = [None]
    if accelerator.is_main_process:
        try:
            answer = [apply_filters(list(groups), filters, "group").dropped]
        except TrlmathError as error:  # the others must hear of it too
            answer = [error]
    broadcast_object_list(answer)
    if isinstance(answer[0], TrlmathError):
        raise answer[0]
    return answer[0]
