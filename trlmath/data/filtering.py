"""Apply a recipe's filters and keep a ledger of everything dropped, with the reason."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from trlmath.components import Component, resolve
from trlmath.containers import own
from trlmath.errors import DataError, PluginError, RecipeError, TrlmathError, nearest
from trlmath.reward_faults import file_of, place_in
from trlmath.time_limit import Overrun, call_within
from trlmath.types import Drop, Group, Keep, Problem

Moment = Literal["example", "group", "trace"]
MOMENTS: tuple[Moment, ...] = ("example", "group", "trace")
TOGETHER = 256
"""Items that a filter which decides one by one has its time limit for."""
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


class _Wrong(PluginError):
    """A decision that is none: its message says all."""


class NamedFilter:
    """A built filter with its name, moment and origin; calls are checked.

    Args:
        limit: seconds that a call, or `TOGETHER` items, may take; None: no limit.
    """

    def __init__(self, name: str, component: Component, function: Any, limit: float | None = None) -> None:
        """Raises PluginError unless `function` is callable and says its moment."""
        self.limit = limit
        self.name, self.component, self.function = name, component, function
        self._who = f"filter {name!r} ({component.origin})"
        moment = getattr(function, "moment", None)
        if moment not in MOMENTS:
            raise PluginError(
                f"{self._who} has moment {moment!r}; allowed: {', '.join(MOMENTS)}."
                f"{nearest(str(moment), MOMENTS)}"
            )
        if not callable(function) and not hasattr(function, "select"):
            raise PluginError(f"{self._who} is a {type(function).__name__}, which cannot be called.")
        self.moment: Moment = moment

    def bind(self, **given: Any) -> None:
        """Hand `tokenizer`, `prompt`, ... to a filter that has a method ``bind``, as far as it names them."""
        if hasattr(self.function, "bind"):
            self._guarded("It was bound.", self.function.bind, **self._wanted("bind", given))

    def __call__(self, item: Problem | Group) -> Keep | Drop:
        """Return the filter's decision. Raises PluginError naming filter, distribution and item."""
        return self._each([item])[0]

    def select(self, items: Sequence[Any]) -> list[Keep | Drop]:
        """Return one decision an item: by the filter's own ``select(items)``, else item by item.

        Raises:
            PluginError: as `__call__`, and for a ``select`` that does not answer for every item.
        """
        if not hasattr(self.function, "select"):
            parts = range(0, len(items), TOGETHER)
            return [decision for at in parts for decision in self._each(items[at : at + TOGETHER])]
        answer = self._guarded(
            f"It had {len(items)} items.", self.function.select, [own(item) for item in items]
        )
        if not isinstance(answer, Sequence) or len(answer) != len(items):
            given = len(answer) if isinstance(answer, Sequence) else type(answer).__name__
            raise PluginError(
                f"{self._who}: select() returned {given}; return one Keep() or Drop(reason) for each of the "
                f"{len(items)} items, in their order."
            )
        return [self._checked(decision) for decision in answer]

    def begin(self, iteration: int, pool: int) -> None:
        """Tell a filter that has a method ``begin`` that an iteration's selection begins, as far as it asks.

        Args:
            iteration: from 0.
            pool: traces trained on in the iteration before.
        """
        if hasattr(self.function, "begin"):
            given = self._wanted("begin", {"iteration": iteration, "pool": pool})
            self._guarded(f"Iteration {iteration}.", self.function.begin, **given)

    def recall(self) -> list[Problem]:
        """Traces of earlier iterations that the filter wants considered again, if it has ``recall``."""
        if not hasattr(self.function, "recall"):
            return []
        return list(self._guarded("It was asked for its pool.", self.function.recall))

    def state_dict(self) -> dict[str, Any] | None:
        """The filter's state, None when it has none."""
        if not hasattr(self.function, "state_dict"):
            return None
        return self._guarded("It was asked for its state.", self.function.state_dict)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Give a filter the state that it once returned."""
        self._guarded("It was given its state.", self.function.load_state_dict, state)

    def _wanted(self, method: str, given: Mapping[str, Any]) -> dict[str, Any]:
        wanted = inspect.signature(getattr(self.function, method)).parameters
        for name, parameter in wanted.items():
            if name not in given and parameter.default is parameter.empty:
                raise PluginError(
                    f"{self._who}: {method}() asks for {name!r}.{nearest(name, given)} "
                    f"It can have: {', '.join(given)}."
                )
        return {name: value for name, value in given.items() if name in wanted}

    def _each(self, items: Sequence[Problem | Group]) -> list[Keep | Drop]:
        decisions: list[Keep | Drop] = []

        def about() -> str:
            return f"The item: {ascii(_question(items[min(len(decisions), len(items) - 1)]))[:160]}."

        def decide() -> None:
            for item in items:
                decisions.append(self._checked(self.function(own(item))))

        self._limited(about, self.function, decide)
        return decisions

    def _guarded(self, about: str, function: Any, *arguments: Any, **named: Any) -> Any:
        return self._limited(lambda: about, function, lambda: function(*arguments, **named))

    def _limited(self, about: Callable[[], str], function: Any, call: Callable[[], Any]) -> Any:
        try:
            return call_within(self.limit, self._who, call)
        except Overrun as error:
            raise PluginError(
                f"{self._who} gave no answer within {error.seconds:g} s (checks.reward_timeout)."
                f"{place_in(error.frames, file_of(function))} {about()}"
            ) from None
        except _Wrong:
            raise
        except TrlmathError as error:
            raise PluginError(f"{self._who}: {error}") from error
        except (Exception, SystemExit) as error:
            raise PluginError(f"{self._who} raised {type(error).__name__}: {error}. {about()}") from error

    def _checked(self, decision: Any) -> Keep | Drop:
        if not isinstance(decision, (Keep, Drop)):
            raise _Wrong(f"{self._who} returned {decision!r}; return Keep() or Drop(reason).")
        return decision


def build_filters(refs: Iterable[Any], limit: float | None = None, **given: Any) -> list[NamedFilter]:
    """Build the filters of a recipe, in order, and bind what is given (``tokenizer=``, ``prompt=``).

    Args:
        limit: see `NamedFilter`.
    """
    filters = []
    for ref in refs:
        component = resolve("filter", ref.name)
        filters.append(NamedFilter(ref.name, component, component.build(ref.options), limit))
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
    """Apply the filters of one moment, one after the other; each sees what those before it kept.

    The ledger comes back in the order of the items.
    """
    left = list(range(len(items)))
    dropped = []
    for named in (f for f in filters if f.moment == moment):
        decisions = named.select([items[index] for index in left])
        dropped += [
            LedgerEntry(moment, named.name, decision.reason, index, _question(items[index]))
            for index, decision in zip(left, decisions, strict=True)
            if isinstance(decision, Drop)
        ]
        left = [index for index, d in zip(left, decisions, strict=True) if isinstance(d, Keep)]
    return Filtered([items[index] for index in left], left, sorted(dropped, key=lambda entry: entry.index))


def filter_problems(
    problems: Sequence[Problem],
    filters: Iterable[NamedFilter],
    name: str,
    moments: Sequence[Moment] = ("example",),
) -> Filtered[Problem]:
    """Apply the filters of `moments`, one moment after the other, to the rows of dataset `name`.

    Raises:
        DataError: none is left.
    """
    chosen = list(filters)
    result = Filtered(list(problems), list(range(len(problems))), [])
    for moment in moments:
        step = apply_filters(result.kept, chosen, moment)
        places = result.indices
        result = Filtered(
            step.kept,
            [places[at] for at in step.indices],
            [*result.dropped, *(replace(entry, index=places[entry.index]) for entry in step.dropped)],
        )
    if problems and not result.kept:
        reasons = "; ".join(f"{what} ({count})" for what, count in result.counts().items())
        raise DataError(
            f"the filters drop all {len(problems)} rows of {name!r}: {reasons}. Loosen or remove one."
        )
    return result


def check_moments(filters: Iterable[NamedFilter], allowed: Sequence[Moment]) -> None:
    """Raise RecipeError for a filter that an algorithm with the moments `allowed` would never ask."""
    for named in filters:
        if named.moment not in allowed:
            raise RecipeError(
                f"filters: {named.name!r} decides about each {named.moment}, and this recipe's algorithm has "
                f"none: the filter would do nothing. Remove it; asked are filters about each "
                f"{' and each '.join(allowed)}."
            )


def _question(item: Problem | Group) -> str:
    if isinstance(item, Group):
        return item.problem.question if item.problem else item.prompt
    return item.question
