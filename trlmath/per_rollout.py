"""Rewards of one rollout at a time, as `verifiers` rubrics hold them: ``(completion, answer) -> float``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

# Their names for one rollout -> our lists; what a rubric makes itself is made here.
_LISTS = {"completion": "completions", "prompt": "prompts"}
_MADE = ("state", "info", "task")


def is_per_rollout(function: Any) -> bool:
    """True for a callable that names ``completion`` and not ``completions``."""
    try:
        names = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return "completion" in names and "completions" not in names


class PerRollout:
    """Call `function` once for each rollout, with what it names of prompt, completion, answer and columns.

    ``state`` is a dict of prompt, completion, answer, info and task; ``info`` and ``task`` come from columns
    of these names, else they are ``{}`` and ``""``. A coroutine function is awaited.
    """

    independent = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        given = inspect.signature(function).parameters.values()
        self._names = [p.name for p in given if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        wanted: dict[str, Any] = {"completions": inspect.Parameter.empty}
        for parameter in given:
            if parameter.name not in self._names:
                continue
            default = None if parameter.name in _MADE else parameter.default
            wanted[_LISTS.get(parameter.name, parameter.name)] = default
        if "state" in wanted:
            wanted |= dict.fromkeys(n for n in ("prompts", "answer", "info", "task") if n not in wanted)
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in wanted.items()]
        )
        self.__doc__ = function.__doc__

    def __call__(self, **lists: Any) -> Any:
        """Return one value for each completion, or a coroutine that does."""
        size = len(lists["completions"])
        values = [self.function(**self._row(lists, index)) for index in range(size)]
        return _gather(values) if any(inspect.isawaitable(value) for value in values) else values

    def _row(self, lists: dict[str, Any], index: int) -> dict[str, Any]:
        row: dict[str, Any] = {"info": {}, "task": ""}
        single = {plural: name for name, plural in _LISTS.items()}
        row |= {single.get(name, name): values[index] for name, values in lists.items() if values is not None}
        row["state"] = {key: row.get(key) for key in ("prompt", "completion", "answer", "info", "task")}
        return {name: row[name] for name in self._names if name in row}


async def _gather(values: list[Any]) -> list[Any]:
    return [await value if inspect.isawaitable(value) else value for value in values]
