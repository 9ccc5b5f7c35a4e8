"""The state of a run's filters in its checkpoints, and back from there when training goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from trlmath.data.filtering import NamedFilter
from trlmath.data.lineage import from_json, to_json
from trlmath.errors import DataError

FILE = "filter_states.json"


class FilterStates:
    """Writes ``filter_states.json`` into each checkpoint, and reads it when training goes on from one.

    Only the main process filters (see `trlmath.training.group_filters`), so only its filters have a state.
    """

    def __init__(self, filters: Sequence[NamedFilter]) -> None:
        self.filters = list(filters)

    def save(self, folder: Path) -> None:
        """Write the states beside the checkpoint's weights."""
        states = [{"filter": f.name, "state": to_json(f.state_dict())} for f in self.filters]
        (folder / FILE).write_text(json.dumps(states), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Give the filters the states of the checkpoint that training goes on from.

        Raises:
            DataError: the checkpoint was made with other filters.
        """
        path = folder / FILE
        states = json.loads(path.read_text(encoding="utf-8"))
        before, now = [s["filter"] for s in states], [f.name for f in self.filters]
        if before != now:
            raise DataError(f"{path} has the state of the filters {before}, and the recipe names {now}.")
        for named, saved in zip(self.filters, states, strict=True):
            if saved["state"] is not None:
                named.load_state_dict(from_json(saved["state"]))
