"""A component on trial: how to build it, what its author declares, and what it answers to fixed samples."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import ModuleType
from typing import Any

from trlmath.components import Component
from trlmath.conformance import samples
from trlmath.data.filtering import NamedFilter
from trlmath.data.prompts import load_prompt
from trlmath.errors import PluginError, nearest
from trlmath.options import REQUIRED
from trlmath.plugins import load_alone
from trlmath.recipe.schema import RewardEntry
from trlmath.rewards import PROVIDED, RewardCaller
from trlmath.types import Drop, Grade

# What the attribute `conformance` of a class or function may hold.
HINTS = {
    "options": "options to build it with, where it has required ones",
    "columns": "one row's value for each dataset column that a reward reads beside question and answer",
    "right": "a completion that is right for that row",
    "wrong": "a completion that is wrong for that row",
    "centred": "True when an advantage's groups, or its whole batch, sum to 0",
    "waive": "property name -> why it does not hold for this component",
}


@dataclass
class Subject:
    """One component under the suite.

    Attributes:
        component: what is checked.
        given: options from the command line or the test, over those that the component declares.
        module: the plugin module that offers it; None for ``file.py:attr`` and ``module:attr``.
        chat: for rewards, ask for chat-shaped completions whatever the component declares.
        hints: the component's attribute ``conformance``.
        probe: what a clean process saw, set by the suite.
    """

    component: Component
    given: Mapping[str, Any] = field(default_factory=dict)
    module: str | None = None
    chat: bool = False
    hints: dict[str, Any] = field(init=False)
    probe: dict[str, Any] | None = None
    seconds: float = 10.0

    def __post_init__(self) -> None:
        """Raises PluginError for an unknown key in the component's ``conformance``."""
        self.hints = dict(getattr(self.component.loaded, "conformance", {}))
        for key in self.hints:
            if key not in HINTS:
                raise PluginError(
                    f"{self}: its `conformance` has no key {key!r}.{nearest(key, HINTS)} Keys: "
                    + "; ".join(f"{name} ({meaning})" for name, meaning in HINTS.items())
                )

    def __str__(self) -> str:
        return f"{self.component.kind} {self.component.name} ({self.component.origin})"

    @property
    def options(self) -> dict[str, Any]:
        """What it is built with. Raises PluginError naming a required option that nobody gave."""
        options = {**self.hints.get("options", {}), **self.given}
        missing = [
            o for o in self.component.options.values() if o.default is REQUIRED and o.name not in options
        ]
        if missing:
            raise PluginError(
                f"{self}: option {missing[0]} is required: give it with -o {missing[0].name}=VALUE, or as "
                f"conformance = {{'options': {{{missing[0].name!r}: ...}}}} on the class."
            )
        return options

    def make(self) -> Any:
        """A fresh component."""
        if self.component.kind == "reward":
            return self.reward()
        if self.component.kind == "filter":
            named = NamedFilter(self.component.name, self.component, self.component.build(self.options))
            named.bind(tokenizer=samples.FakeTokenizer(), prompt=load_prompt("question_only"))
            return named
        return self.component.build(self.options)

    # -- rewards ------------------------------------------------------------------------------------

    def reward(self) -> RewardCaller:
        """A fresh reward, called as a run calls it."""
        form: dict[str, Any] = {"as": "chat"} if self.chat else {}
        entry = RewardEntry(name=self.component.name, options=self.options, **form)
        caller = RewardCaller(entry, self.component)
        lacking = caller.required() - {*PROVIDED, "question", "answer", "solution", *self.columns}
        if lacking:
            name = sorted(lacking)[0]
            raise PluginError(
                f"{self} reads the column {name!r}: give one row's value on the class or function, "
                f"conformance = {{'columns': {{{name!r}: ...}}, 'right': '...', 'wrong': '...'}}."
            )
        return caller

    @property
    def columns(self) -> dict[str, Any]:
        """One row's value of each further column."""
        return dict(self.hints.get("columns", {}))

    def batch(self, rows: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Keyword arguments for a reward, of (completion, gold) pairs."""
        texts, golds = [text for text, _ in rows], [gold for _, gold in rows]
        return {
            "prompts": ["What is it?"] * len(rows),
            "completions": texts,
            "completion_ids": [[samples.hash_of(word) for word in text.split()[:400]] for text in texts],
            "finish_reasons": ["stop"] * len(rows),
            "question": ["What is it?"] * len(rows),
            "answer": golds,
            "solution": golds,
            **{name: [value] * len(rows) for name, value in self.columns.items()},
        }

    # -- what every process must answer alike ---------------------------------------------------------

    def fingerprint(self) -> Any:
        """Answers to the fixed samples, as plain JSON data: equal in every process."""
        kind = self.component.kind
        if kind == "reward":
            rows = [(text, gold) for text, gold in zip(_sample_texts(self), samples.GOLDS, strict=False)]
            return [plain_grade(grade) for grade in self.reward()(**self.batch(rows))]
        if kind == "advantage":
            return advantages_of(self.make(), [[1.0, 0.0, 0.0, 1.0], [0.5, None, 0.25, 1.0]])
        if kind == "filter":
            named = self.make()
            return [_plain_decision(d) for d in named.select(self.items(named.moment))]
        if kind == "prompt":
            return self.make().render("What is {x} + 1?")
        return [[p.question, p.answer] for p in islice(self.make().load("train"), 50)]

    @staticmethod
    def items(moment: str) -> list[Any]:
        """Sample items of a filter's moment."""
        if moment == "group":
            return samples.groups()
        return samples.traces() if moment == "trace" else list(samples.PROBLEMS)


def _sample_texts(subject: Subject) -> list[str]:
    own = [subject.hints[key] for key in ("right", "wrong") if key in subject.hints]
    return [
        *own,
        *(style.format(answer=gold) for style, gold in zip(samples.STYLES, samples.GOLDS, strict=False)),
        "",
    ]


def plain_grade(grade: Grade) -> list[Any]:
    """A grade as JSON data."""
    return [grade.reward, dict(grade.parts), grade.category]


def _plain_decision(decision: Any) -> str | None:
    return decision.reason if isinstance(decision, Drop) else None


def advantages_of(advantage: Any, rewards: Sequence[Sequence[float | None]], dtype: Any = None) -> list:
    """Call an advantage as the trainer does; None stands for not scorable. Returns nested lists."""
    return call_advantage(advantage, rewards, dtype).tolist()


def call_advantage(
    advantage: Any, rewards: Sequence[Sequence[float | None]], dtype: Any = None, device: str = "cpu"
) -> Any:
    """Call an advantage on nested lists and return its tensor as it comes."""
    import torch

    matrix = torch.tensor(
        [[float("nan") if r is None else r for r in row] for row in rewards],
        dtype=dtype or torch.float32,
        device=device,
    )
    available = {
        "lengths": torch.arange(1, matrix.numel() + 1, device=device).view_as(matrix),
        "parts": matrix.clone().unsqueeze(-1),
        "mask": torch.ones_like(matrix, dtype=torch.bool),
    }
    parameters = inspect.signature(advantage).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    wanted = {name: value for name, value in available.items() if takes_all or name in parameters}
    return advantage(matrix, **wanted)


def subjects_of_plugin(
    module: str | ModuleType, distribution: str = "", version: str = "", **fields: Any
) -> list[Subject]:
    """Every component that a plugin module offers. Raises PluginError with its traceback if it is broken."""
    found = load_alone(module, distribution, version)
    if found.broken:
        raise PluginError(f"the plugin {found.broken[0]} failed to load:\n{found.broken[0].traceback}")
    name = module if isinstance(module, str) else module.__name__
    return [Subject(component, module=name, **fields) for component in found.registry]
