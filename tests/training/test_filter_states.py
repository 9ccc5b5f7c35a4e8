"""A filter with a memory keeps it in checkpoints and has it again when training goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from trlmath.components import Component
from trlmath.data.filtering import NamedFilter
from trlmath.errors import DataError
from trlmath.targets import Origin
from trlmath.training.filter_states import FILE, FilterStates
from trlmath.types import Keep


class Counts:
    """Keeps everything and counts."""

    moment = "group"

    def __init__(self):
        self.seen = 0

    def __call__(self, item):
        self.seen += 1
        return Keep()

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


class Forgetful:
    moment = "group"

    def __call__(self, item):
        return Keep()


def named(function, name="counts"):
    return NamedFilter(name, Component("filter", name, function, Origin(None, None, "here")), function)


def test_states_are_saved_and_resumed(make_trainer, tmp_path):
    first, second = Counts(), Counts()

    def trained(counts, steps, resume=None):
        filters = [named(counts), named(Forgetful(), "forgetful")]
        trainer = make_trainer(
            {"group_filters": filters},
            max_steps=steps,
            save_strategy="steps",
            save_steps=1,
            save_only_model=False,
        )
        trainer.kept = [FilterStates(filters)]
        if resume:
            trainer.kept[0].load(Path(resume))
        trainer.train(resume_from_checkpoint=resume)

    trained(first, 1)
    checkpoint = tmp_path / "out" / "checkpoint-1"
    assert json.loads((checkpoint / FILE).read_text()) == [
        {"filter": "counts", "state": {"seen": 2}},
        {"filter": "forgetful", "state": None},
    ]
    trained(second, 2, str(checkpoint))
    assert second.seen == 4, "two groups of the step before, two of its own"
    shutil.rmtree(tmp_path / "out" / "checkpoint-2")
    saved = json.loads((checkpoint / FILE).read_text())
    (checkpoint / FILE).write_text(json.dumps(saved[:1]))
    with pytest.raises(DataError, match=r"\['counts'\], and the recipe names \['counts', 'forgetful'\]"):
        trained(Counts(), 2, str(checkpoint))
