"""Group filters: decided once, on gathered rollouts, and obeyed alike by every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trlmath.data.filtering import LedgerEntry, NamedFilter, apply_filters
from trlmath.together import from_main
from trlmath.types import Group


def decide(filters: Sequence[NamedFilter], groups: Sequence[Group], accelerator: Any) -> list[LedgerEntry]:
    """Return the ledger entries (with the group's number as ``index``) of every group to drop.

    The main process decides and tells the others, so that a filter with state or chance cannot make
    processes disagree on how many rows a step has (they would wait for each other for ever).
    """
    return from_main(
        accelerator.is_main_process, lambda: apply_filters(list(groups), filters, "group").dropped
    )
