"""Call a reward as its recipe entry asks, and check what comes back: the adapter for any TRL reward."""

from __future__ import annotations

import asyncio
import inspect
import math
import numbers
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trlmath.components import Component, resolve
from trlmath.composition import Rule
from trlmath.errors import PluginError, RecipeError, TrlmathError, nearest
from trlmath.per_rollout import PerRollout, is_per_rollout
from trlmath.recipe.schema import RewardEntry
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
_SHOWN = 160


class RewardCaller:
    """One reward of a recipe, ready to call.

    Attributes:
        name: for logs and metrics: the entry's name, ``stem.attr`` for ``path/to/stem.py:attr``.
        weight: its weight in the sum, before `rule.schedule`.
        rule: what else its entry says about its value, see `trlmath.composition`.
        options: what it was built with.
        component: where it comes from.
    """

    def __init__(self, entry: RewardEntry, component: Component) -> None:
        """Build the reward with the entry's options. Raises RecipeError and PluginError."""
        self.name, self.weight, self.component = metric_name(entry.name), entry.weight, component
        self.rule = Rule(entry.scale, entry.clip, dict(entry.schedule), entry.only_if)
        self.options = dict(entry.options)
        self.function: Callable[..., Any] = component.build(entry.options)
        self._who = f"reward {entry.name!r} ({component.origin})"
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
            PluginError: the reward raised, or returned the wrong number of values, a wrong type, NaN
                or infinity. The message names the reward, its distribution and the first rollout at fault.
        """
        completions: Sequence[str] = given["completions"]
        try:
            answer = self._call(given)
        except TrlmathError as error:
            raise PluginError(f"{self._who} raised {type(error).__name__}: {error}") from error
        except (Exception, SystemExit) as error:  # sys.exit() in a reward would end the run without a word
            raise PluginError(self._explain_raise(error, given)) from error
        return self._check(answer, completions)

    def _call(self, given: Mapping[str, Any]) -> Any:
        return self.finish(self.function(**self.arguments(given)))

    @staticmethod
    def finish(answer: Any) -> Any:
        """Await what a coroutine function returned; TRL takes those too."""
        return asyncio.run(_wait_for(answer)) if inspect.isawaitable(answer) else answer

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the function is called with: what it names of `given`, renamed and shaped by the entry."""
        # lists of its own: what one reward does to them, the next must not see
        given = {name: _own(value) for name, value in given.items()}
        if self._chat:
            given["completions"] = [[{"role": "assistant", "content": text}] for text in given["completions"]]
            if "prompts" in given:
                given["prompts"] = [[{"role": "user", "content": text}] for text in given["prompts"]]
        given |= {parameter: given[column] for parameter, column in self._columns.items()}
        return given if self._takes_all else {n: v for n, v in given.items() if n in self._named}

    def _explain_raise(self, error: BaseException, given: Mapping[str, Any]) -> str:
        """Say which rollout it was, by calling again with one rollout at a time."""
        index = self._first_raising(given)
        tip = ""
        if not self._chat and isinstance(error, TypeError) and "indices" in str(error):
            tip = " If it reads completion[0]['content'], add `as: chat` to its entry."
        return (
            f"{self._who} raised {type(error).__name__}: {error}.{tip} "
            f"{self._rollout(index, given['completions'])}"
        )

    def _first_raising(self, given: Mapping[str, Any]) -> int:
        size = len(given["completions"])
        for index in range(size):
            one = {
                name: [value[index]] if isinstance(value, (list, tuple)) and len(value) == size else value
                for name, value in given.items()
            }
            try:
                self._call(one)
            except (Exception, SystemExit):  # noqa: BLE001  (marks the rollout; the first error is the one reported)
                return index
        return 0

    def _check(self, answer: Any, completions: Sequence[str]) -> list[Grade]:
        if hasattr(answer, "tolist"):  # a tensor or an array
            answer = answer.tolist()
        if isinstance(answer, (str, bytes)) or not isinstance(answer, Sequence):
            raise PluginError(
                f"{self._who} returned {type(answer).__name__}, not a list of one number or None per "
                f"completion. "
                f"{self._rollout(0, completions)}"
            )
        if len(answer) != len(completions):
            raise PluginError(
                f"{self._who} returned {len(answer)} values for {len(completions)} completions. "
                f"{self._rollout(min(len(answer), len(completions) - 1), completions)}"
            )
        return [self._to_grade(value, index, completions) for index, value in enumerate(answer)]

    def _to_grade(self, value: Any, index: int, completions: Sequence[str]) -> Grade:
        grade = value if isinstance(value, Grade) else Grade(reward=value)
        for part, number in {"its reward": grade.reward, **grade.parts}.items():
            if number is None:
                continue
            if not isinstance(number, numbers.Real):
                problem = (
                    f"{number!r} ({type(number).__name__}) as {part}; a number, None or a Grade is allowed"
                )
            elif not math.isfinite(number):
                problem = f"{number} as {part}; return None for a completion that cannot be scored"
            else:
                continue
            raise PluginError(f"{self._who} returned {problem}. {self._rollout(index, completions)}")
        if grade.reward is not None and not isinstance(value, Grade):
            return Grade(reward=float(grade.reward))
        return grade

    @staticmethod
    def _rollout(index: int, completions: Sequence[str]) -> str:
        if not completions:
            return "There was no completion."
        text = completions[index]
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} [...] {text[-_SHOWN // 2 :]}"
        return f"First rollout at fault: number {index} of {len(completions)}, {ascii(shown)}."


def metric_name(name: str) -> str:
    """Return a component's name as metrics can carry it: ``mine.score`` for ``/home/me/mine.py:score``."""
    where, colon, attr = name.rpartition(":")
    if not colon:
        return name
    return f"{Path(where).stem if where.endswith('.py') else where}.{attr}"


def _own(value: Any) -> Any:
    """A list copied, and the lists in it (token ids, a column's values); anything else as it is."""
    if not isinstance(value, list):
        return value
    return [list(item) if isinstance(item, list) else item for item in value]


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer


def build_rewards(entries: Iterable[RewardEntry]) -> list[RewardCaller]:
    """Build every reward of a recipe, in order. Raises RecipeError and PluginError."""
    return [RewardCaller(entry, resolve("reward", entry.name)) for entry in entries]
