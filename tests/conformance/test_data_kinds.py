"""The conformance suite on filters, datasets and prompts: every property can fail."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from conformance_reports import broken

from trlmath import Drop, Keep, Problem, Prompt


@dataclass
class Short:
    """Drop what is over `most` characters."""

    most: int = 30
    moment: ClassVar[str] = "example"

    def __call__(self, item):
        return Keep() if len(item.question) <= self.most else Drop("long")


class Yes(Short):
    def __call__(self, item):
        return item.question != ""


class Mute(Short):
    def __call__(self, item):
        return Drop("") if len(item.question) > 20 else Keep()


class Nothing(Short):
    def __call__(self, item):
        return Drop("never")


class NoAnswer(Short):
    def __call__(self, item):
        return Keep() if item.answer.strip() else Drop("no answer")


class Alternates(Short):
    count = itertools.count()

    def __call__(self, item):
        return Keep() if next(self.count) % 2 else Drop("odd")


class Marks(Short):
    def __call__(self, item):
        item.metadata["seen"] = True
        return super().__call__(item)


@dataclass
class Forgets(Short):
    """Drop what was seen, blind to `most`, and lose the memory on saving."""

    seen: set = field(default_factory=set, init=False)

    def __call__(self, item):
        if item.question in self.seen:
            return Drop("seen")
        self.seen.add(item.question)
        return Keep()

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class SetState(Forgets):
    def state_dict(self):
        return {"seen": self.seen, "file": Path}


@pytest.mark.parametrize(
    ("drops", "name"),
    [
        (Yes, "total"),
        (NoAnswer, "total"),
        (Mute, "reasons"),
        (Nothing, "keeps some"),
        (Alternates, "order"),
        (Forgets, "state"),
        (Marks, "inputs untouched"),
    ],
)
def test_each_property_of_filters_can_fail(drops, name):
    found = broken("filter", drops)
    assert name in found, found
    assert not broken("filter", Short)


class Data:
    """Two splits."""

    def load(self, split):
        return [Problem(f"{split} {i}?", "1", metadata={"n": i}) for i in range(9)]


class Leaky(Data):
    def load(self, split):
        return [Problem(f"{i}?", "1") for i in range(9)]


class Empty(Data):
    def load(self, split):
        return [] if split == "eval" else super().load(split)


class Odd(Data):
    def load(self, split):
        return [*super().load(split), Problem(f"{split}!", "1")]


class Objects(Data):
    def load(self, split):
        return [Problem(f"{split}!", "1", metadata={"n": object()})]


@pytest.mark.parametrize(
    ("dataset", "name"), [(Leaky, "disjoint"), (Empty, "rows"), (Odd, "same columns"), (Objects, "rows")]
)
def test_each_property_of_datasets_can_fail(dataset, name):
    assert name in broken("dataset", dataset)
    assert not broken("dataset", Data)


class Shouting(Prompt):
    def render(self, question):
        return super().render(question).upper()


def test_each_property_of_prompts_can_fail():
    assert not broken("prompt", Prompt("q", "Q: {question}", None, "Asks."))
    assert "question kept" in broken("prompt", Shouting("q", "Q: {question}", None, "Asks."))
    assert "stop string" in broken("prompt", Prompt("q", "Q: {question}", " ", "Asks."))
    assert "documented" in broken("prompt", Prompt("q", "Q: {question}"))
