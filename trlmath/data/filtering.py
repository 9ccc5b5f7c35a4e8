"""Apply a recipe's filters and keep a ledger of everything dropped, with the reason."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Literal, TypeVar

from trlmath.components import Component, resolve
from trlmath.errors import DataError, PluginError, TrlmathError, nearest
from trlmath.types import Drop, Group, Keep, Problem

Moment = Literal["example", "group", "trace"]
MOMENTS: tuple[Moment, ...] = ("example", "group", "trace")
Item = TypeVar("Item", Problem, Group)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One drop.

    Attributes:
        moment: ``example``, ``group`` or ``trace``.
        filter: name of the filter, as the recipe writes it.
        reason: its reason, short and countable.
        index: position of the item among those given.
        question: the question, for people.
    """

    moment: str
    filter: str
    reason: str
    index: int
    question: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for ``filters.jsonl``."""
        return asdict(self)


class NamedFilter:
    """A built filter with its name, moment and origin; calls are checked."""

    def __init__(self, name: str, component: Component, function: Any) -> None:
        """Raises PluginError unless `function` is callable and says its moment."""
        self.name, self.component, self.function = name, component, function
        self._who = f"filter {name!r} ({component.origin})"
        moment = getattr(function, "moment", None)
        if moment not in MOMENTS:
            raise PluginError(
                f"{self._who} has moment {moment!r}; allowed: {', '.join(MOMENTS)}."
                f"{nearest(str(moment), MOMENTS)}"
            )
        if not callable(function):
            raise PluginError(f"{self._who} is a {type(function).__name__}, which cannot be called.")
        self.moment: Moment = moment

    def bind(self, **given: Any) -> None:
        """Hand `tokenizer`, `prompt`, ... to a filter that has a method ``bind``, as far as it names them."""
        if not hasattr(self.function, "bind"):
            return
        wanted = inspect.signature(self.function.bind).parameters
        for name, parameter in wanted.items():
            if name not in given and parameter.default is parameter.empty:
                raise PluginError(
                    f"{self._who}: bind() asks for {name!r}.{nearest(name, given)} "
                    f"It can have: {', '.join(given)}."
                )
        self.function.bind(**{name: value for name, value in given.items() if name in wanted})

    def __call__(self, item: Problem | Group) -> Keep | Drop:
        """Return the filter's decision. Raises PluginError naming filter, distribution and item."""
        try:
            decision = self.function(item)
        except TrlmathError as error:
            raise PluginError(f"{self._who}: {error}") from error
        except Exception as error:
            raise PluginError(
                f"{self._who} raised {type(error).__name__}: {error}. "
                f"The item: {ascii(_question(item))[:160]}."
            ) from error
        if not isinstance(decision, (Keep, Drop)):
            raise PluginError(f"{self._who} returned {decision!r}; return Keep() or Drop(reason).")
        return decision


def build_filters(refs: Iterable[Any], **given: Any) -> list[NamedFilter]:
    """Build the filters of a recipe, in order, and bind what is given (``tokenizer=``, ``prompt=``)."""
    filters = []
    for ref in refs:
        component = resolve("filter", ref.name)
        filters.append(NamedFilter(ref.name, component, component.build(ref.options)))
        filters[-1].bind(**given)
    return filters


@dataclass(frozen=True)
class Filtered(Generic[Item]):
    """What filtering left: the kept items, their indices among the items given, and the drops."""

    kept: list[Item]
    indices: list[int]
    dropped: list[LedgerEntry]

    def counts(self) -> dict[str, int]:
        """Drops by ``filter: reason``, most frequent first."""
        return dict(Counter(f"{entry.filter}: {entry.reason}" for entry in self.dropped).most_common())


def apply_filters(items: Sequence[Item], filters: Iterable[NamedFilter], moment: Moment) -> Filtered[Item]:
    """Apply the filters of one moment to each item; the first Drop decides."""
    chosen = [f for f in filters if f.moment == moment]
    kept, indices, dropped = [], [], []
    for index, item in enumerate(items):
        for named in chosen:
            decision = named(item)
            if isinstance(decision, Drop):
                dropped.append(LedgerEntry(moment, named.name, decision.reason, index, _question(item)))
                break
        else:
            kept.append(item)
            indices.append(index)
    return Filtered(kept, indices, dropped)


def filter_problems(
    problems: Sequence[Problem], filters: Iterable[NamedFilter], name: str
) -> Filtered[Problem]:
    """Apply the example filters to the rows of dataset `name`. Raises DataError when none is left."""
    result = apply_filters(problems, filters, "example")
    if problems and not result.kept:
        reasons = "; ".join(f"{what} ({count})" for what, count in result.counts().items())
        raise DataError(
            f"the filters drop all {len(problems)} rows of {name!r}: {reasons}. Loosen or remove one."
        )
    return result


def _question(item: Problem | Group) -> str:
    if isinstance(item, Group):
        return item.problem.question if item.problem else item.prompt
    return item.question
