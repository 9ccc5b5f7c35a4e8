"""Call a reward as its recipe entry asks, and check what comes back: the adapter for any TRL reward."""

from __future__ import annotations

import asyncio
import inspect
import numbers
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

from trlmath.components import Component, resolve
from trlmath.composition import Rule
from trlmath.containers import copied
from trlmath.errors import PluginError, RecipeError, TrlmathError, nearest
from trlmath.per_rollout import PerRollout, is_per_rollout
from trlmath.recipe.schema import ChecksSection, RewardEntry
from trlmath.reward_faults import (
    FaultPolicy,
    FaultRecord,
    RewardFault,
    file_of,
    place_in,
    rollout_in,
    unscored,
)
from trlmath.time_limit import Overrun, call_within
from trlmath.types import Grade

# What the trainer gives to every reward, beside the dataset's columns; the last three come from TRL.
PROVIDED = (
    "prompts",
    "completions",
    "completion_ids",
    "finish_reasons",
    "trainer_state",
    "log_extra",
    "log_metric",
)
LARGEST = 3.4e38
"""What a float32, in which rewards are summed, holds."""
_SHOWN = 160


class RewardCaller:
    """One reward of a recipe, ready to call.

    Attributes:
        name: for logs and metrics: the entry's name, ``stem.attr`` for ``path/to/stem.py:attr``.
        weight: its weight in the sum, before `rule.schedule`.
        rule: what else its entry says about its value, see `trlmath.composition`.
        options: what it was built with.
        component: where it comes from.
        faults: what is done about its faults, and how many there were.
    """

    def __init__(self, entry: RewardEntry, component: Component, policy: FaultPolicy | None = None) -> None:
        """Build the reward with the entry's options. Raises RecipeError and PluginError."""
        self.name, self.weight, self.component = metric_name(entry.name), entry.weight, component
        self.rule = Rule(entry.scale, entry.clip, dict(entry.schedule), entry.only_if)
        self.options = dict(entry.options)
        self.function: Callable[..., Any] = component.build(entry.options)
        self._who = f"reward {entry.name!r} ({component.origin})"
        self.faults = FaultRecord(self._who, policy or FaultPolicy())
        if not callable(self.function):
            raise PluginError(f"{self._who} is a {type(self.function).__name__}, which cannot be called.")
        single = is_per_rollout(self.function)
        if single:
            self.function = PerRollout(self.function)
        self._chat = (entry.as_ or ("chat" if single else component.completions)) == "chat"
        parameters = inspect.signature(self.function).parameters
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self._named = {n: p for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
        # each completion is graded by itself, so that grading may begin before all are there
        self.independent = bool(getattr(self.function, "independent", False))
        self._columns = dict(entry.columns)
        for parameter in self._columns:
            if parameter not in self._named and not self._takes_all:
                raise RecipeError(
                    f"{self._who} has no argument {parameter!r} to fill from column "
                    f"{self._columns[parameter]!r}.{nearest(parameter, self._named)} "
                    f"Its arguments: {', '.join(self._named)}."
                )

    def required(self) -> set[str]:
        """Names of the arguments without a default, columns and `PROVIDED` ones."""
        return {name for name, p in self._named.items() if p.default is p.empty}

    def check_columns(self, available: Iterable[str]) -> None:
        """Raise RecipeError when the dataset lacks a column that the reward needs; call before training."""
        available = list(available)
        needed = {name: name for name in self.required() if name not in PROVIDED}
        for parameter, column in (needed | self._columns).items():
            if column not in available and column not in PROVIDED:
                raise RecipeError(
                    f"{self._who} reads {parameter!r}, and the dataset has no column {column!r}."
                    f"{nearest(column, available)} Its columns: {', '.join(available)}. Name one under "
                    f"`columns`: {{{parameter}: <column>}} in the reward's entry, or under `data.columns`."
                )

    def __call__(self, **given: Any) -> list[Grade]:
        """Return one Grade per completion.

        Args:
            given: `PROVIDED` (lists of one item per completion; completions as text) and the dataset's
                columns, also one item per completion.

        Raises:
            PluginError: the reward raised, took longer than its limit, or returned the wrong number of
                values, a wrong type, NaN or infinity. The message names the reward, its distribution and the
                first rollout at fault. Where faults make rollouts unscorable: it scores nothing any more.
        """
        policy = self.faults.policy
        try:
            grades, fault = self._graded(given, lenient=policy.on_error == "unscorable")
        except RewardFault as error:
            if policy.on_error == "stop":
                raise PluginError(str(error)) from error.__cause__
            grades, fault = self._rescued(error, given), error
        self.faults.batch(grades, fault)
        return grades

    def _graded(self, given: Mapping[str, Any], lenient: bool) -> tuple[list[Grade], RewardFault | None]:
        """Grades of a batch, and the first wrong value if that is to be let pass; raises RewardFault."""
        arguments = self.arguments(given)
        try:
            answer = self._limited(lambda: self._call(arguments))
        except TrlmathError as error:
            raise RewardFault(f"{self._who} raised {type(error).__name__}: {error}") from error
        except Overrun as error:
            raise self._overrun(error, given, arguments) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # sys.exit() or a cancelled task would end the run without a word
            raise self._explain_raise(error, given) from error
        return self._check(answer, given["completions"], lenient)

    def _limited(self, call: Callable[[], Any]) -> Any:
        return call_within(self.faults.policy.timeout, self._who, lambda: self.faults.watched(call))

    def _call(self, arguments: Mapping[str, Any]) -> Any:
        return self.finish(self.function(**arguments))

    @staticmethod
    def finish(answer: Any) -> Any:
        """Await what a coroutine function returned; TRL takes those too."""
        return asyncio.run(_wait_for(answer)) if inspect.isawaitable(answer) else answer

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the function is called with: what it names of `given`, renamed and shaped by the entry."""
        if not self._takes_all:
            wanted = {*self._named, *self._columns.values()}
            given = {name: value for name, value in given.items() if name in wanted}
        # containers of its own: what one reward does to them, neither the next nor the dataset must see
        given = {name: _own(name, value) for name, value in given.items()}
        if self._chat:
            for name, role in (("completions", "assistant"), ("prompts", "user")):
                if name in given:
                    given[name] = [[{"role": role, "content": text}] for text in given[name]]
        given |= {parameter: given[column] for parameter, column in self._columns.items()}
        return given if self._takes_all else {n: v for n, v in given.items() if n in self._named}

    # -- faults -------------------------------------------------------------------------------------

    def _rescued(self, fault: RewardFault, given: Mapping[str, Any]) -> list[Grade]:
        """Grades after a fault of the whole batch: without the rollouts that it can be pinned on, if any.

        Only a reward that grades each completion by itself may be asked again for part of a batch.
        """
        size = len(given["completions"])
        grades = [unscored(fault)] * size
        if not self.independent or fault.index is None:
            return grades
        if fault.overrun:
            left = [index for index in range(size) if index != fault.index]
            parts = [left] if left else []
        else:
            parts = [[index] for index in range(size)]
        lost = 0
        for part in parts:
            try:
                found, _ = self._graded(_part(given, part), lenient=True)
            except RewardFault as error:
                found = [unscored(error)] * len(part)
                lost += error.overrun
            for index, grade in zip(part, found, strict=True):
                grades[index] = grade
            if lost:  # one more limit at most is waited for
                break
        return grades

    def _overrun(self, error: Overrun, given: Mapping[str, Any], arguments: Mapping[str, Any]) -> RewardFault:
        shaped = arguments.get("completions", ())
        index = rollout_in(error.frames, given["completions"], shaped)
        told = "Which rollout it was at cannot be told."
        if index is not None:
            told = self._rollout(index, given["completions"], "It was at rollout")
        return RewardFault(
            f"{self._who} gave no answer for {len(given['completions'])} completions within "
            f"{error.seconds:g} s (checks.reward_timeout)."
            f"{place_in(error.frames, file_of(self._code))} {told}",
            index,
            overrun=True,
        )

    @property
    def _code(self) -> Any:
        """The function, or the method that makes an object callable."""
        function = self.function.function if isinstance(self.function, PerRollout) else self.function
        return function if inspect.isroutine(function) else type(function).__call__

    def _explain_raise(self, error: BaseException, given: Mapping[str, Any]) -> RewardFault:
        """Say which rollout it was, by calling again with one rollout at a time."""
        index = None
        with suppress(Overrun):
            index = self._limited(lambda: self._first_raising(given))
        tip = ""
        if not self._chat and isinstance(error, TypeError) and "indices" in str(error):
            tip = " If it reads completion[0]['content'], add `as: chat` to its entry."
        told = (
            f"None of the {len(given['completions'])} rollouts does it alone."
            if index is None
            else self._rollout(index, given["completions"])
        )
        return RewardFault(f"{self._who} raised {type(error).__name__}: {_text(error)}.{tip} {told}", index)

    def _first_raising(self, given: Mapping[str, Any]) -> int | None:
        for index in range(len(given["completions"])):
            try:
                self._call(self.arguments(_part(given, [index])))
            except (Overrun, KeyboardInterrupt):
                raise
            except BaseException:  # noqa: BLE001  (marks the rollout; the first error is the one reported)
                return index
        return None

    def _check(
        self, answer: Any, completions: Sequence[str], lenient: bool
    ) -> tuple[list[Grade], RewardFault | None]:
        if hasattr(answer, "tolist"):  # a tensor or an array
            answer = answer.tolist()
        if isinstance(answer, (str, bytes)) or not isinstance(answer, Sequence):
            raise RewardFault(
                f"{self._who} returned {type(answer).__name__}, not a list of one number or None per "
                f"completion. "
                f"{self._rollout(0, completions)}"
            )
        if len(answer) != len(completions):
            raise RewardFault(
                f"{self._who} returned {len(answer)} values for {len(completions)} completions. "
                f"{self._rollout(min(len(answer), len(completions) - 1), completions)}"
            )
        grades, first = [], None
        for index, value in enumerate(answer):
            try:
                grades.append(self._to_grade(value, index, completions))
            except RewardFault as fault:
                if not lenient:
                    raise
                grades.append(unscored(fault))
                first = first or fault
        return grades, first

    def _to_grade(self, value: Any, index: int, completions: Sequence[str]) -> Grade:
        grade = value if isinstance(value, Grade) else Grade(reward=value)
        for part, number in {"its reward": grade.reward, **grade.parts}.items():
            if number is None:
                continue
            if not isinstance(number, numbers.Real):
                problem = (
                    f"{_text(number, repr)} ({type(number).__name__}) as {part}; a number, None or a "
                    "Grade is allowed"
                )
            elif not -LARGEST <= number <= LARGEST:  # NaN is not in there either
                shown = number if isinstance(number, float) else "a number over 3.4e38"
                problem = f"{shown} as {part}; return None for a completion that cannot be scored"
            else:
                continue
            raise RewardFault(f"{self._who} returned {problem}. {self._rollout(index, completions)}", index)
        if grade.reward is not None and not isinstance(value, Grade):
            return Grade(reward=float(grade.reward))
        return grade

    @staticmethod
    def _rollout(index: int, completions: Sequence[str], who: str = "First rollout at fault: number") -> str:
        if not completions:
            return "There was no completion."
        text = completions[index]
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} [...] {text[-_SHOWN // 2 :]}"
        return f"{who} {index} of {len(completions)}, {ascii(shown)}."


def _text(thing: Any, how: Callable[[Any], str] = str) -> str:
    """What a reward raised or returned, as text; it may be of a class that cannot be shown."""
    try:
        return how(thing)
    except Exception as error:  # noqa: BLE001  (the fault at hand is the one reported)
        return f"(showing it raised {type(error).__name__})"


def metric_name(name: str) -> str:
    """Return a component's name as metrics can carry it: ``mine.score`` for ``/home/me/mine.py:score``."""
    where, colon, attr = name.rpartition(":")
    if not colon:
        return name
    return f"{Path(where).stem if where.endswith('.py') else where}.{attr}"


def _own(name: str, value: Any) -> Any:
    """A copy of what is given under `name`, of the containers in it too; anything else as it is."""
    if name == "completion_ids":  # long, and flat
        return [list(ids) for ids in value]
    if name == "trainer_state":
        return copy(value)
    return copied(value)


def _part(given: Mapping[str, Any], chosen: Sequence[int]) -> dict[str, Any]:
    """What is given, of some rollouts only."""
    size = len(given["completions"])
    return {
        name: [value[index] for index in chosen]
        if isinstance(value, (list, tuple)) and len(value) == size
        else value
        for name, value in given.items()
    }


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer


def build_rewards(entries: Iterable[RewardEntry], checks: ChecksSection | None = None) -> list[RewardCaller]:
    """Build a recipe's rewards, in order; `checks`: the recipe's. Raises RecipeError and PluginError."""
    checks = checks or ChecksSection()
    policy = FaultPolicy(checks.reward_timeout, checks.on_reward_error)
    return [RewardCaller(entry, resolve("reward", entry.name), policy) for entry in entries]
