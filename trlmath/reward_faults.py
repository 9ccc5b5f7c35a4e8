"""What a run does about a reward that fails: time limit, what is unscorable, told and counted, the end."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal
from weakref import WeakSet

from trlmath.errors import PluginError, say
from trlmath.secrets import hidden
from trlmath.types import Grade

REWARD_ERROR = "reward_error"
"""Category of a completion that a reward failed on."""
BATCHES_IN_A_ROW = 5
"""A reward that scores nothing in so many batches ends the run, whatever the recipe says."""
GROWING_CALLS = 5
"""Calls in a row that each leave one more thread behind: a leak, no pool."""

_left: WeakSet[threading.Thread] = WeakSet()  # threads that calls of rewards have started and not ended


@dataclass(frozen=True)
class FaultPolicy:
    """What the recipe's `checks` say about rewards.

    Attributes:
        timeout: seconds that a call (a batch) may take; None for no limit.
        on_error: ``stop`` the run, or take rollouts that it failed on as ``unscorable``.
    """

    timeout: float | None = None
    on_error: Literal["stop", "unscorable"] = "stop"


class RewardFault(Exception):
    """One call of a reward failed; never leaves `trlmath.rewards`.

    Attributes:
        index: number of the rollout that did it; None when that cannot be told.
        overrun: it gave no answer in time.
    """

    def __init__(self, message: str, index: int | None = None, overrun: bool = False) -> None:
        super().__init__(message)
        self.index, self.overrun = index, overrun


class FaultRecord:
    """What one reward did so far: counts for the metrics, threads it left behind, faults told once.

    Args:
        who: the reward, for messages.
        policy: the recipe's.
    """

    def __init__(self, who: str, policy: FaultPolicy) -> None:
        self.who, self.policy = who, policy
        self.tell: Callable[[str], None] = say
        self.seen = self.failed = 0  # rollouts since `shares` last asked
        self._lost = 0  # batches in a row
        self._told: set[str] = set()
        self._growing = 0

    def batch(self, grades: Sequence[Grade], fault: Exception | None) -> None:
        """Count one batch; `fault` is the first of it.

        Raises:
            PluginError: nothing was scored in `BATCHES_IN_A_ROW` batches in a row.
        """
        failed = sum(grade.category == REWARD_ERROR for grade in grades)
        self.seen, self.failed = self.seen + len(grades), self.failed + failed
        if fault is None:
            self._lost = 0
            return
        self._once(
            "fault",
            f"reward   {failed} of {len(grades)} rollouts cannot be scored: {fault} (Told once; "
            "train/rewards/<name>/errors goes on counting.)",
        )
        self._lost = self._lost + 1 if failed == len(grades) else 0
        if self._lost >= BATCHES_IN_A_ROW:
            raise PluginError(
                f"{self.who} has failed on every rollout of {self._lost} batches in a row, so nothing is "
                f"scored (checks.on_reward_error: unscorable). The last one: {fault}"
            )

    def watched(self, call: Callable[[], Any]) -> Any:
        """Call, put back what of the process was changed, and look whether threads are left behind.

        Each is told once; threads, when they are left call after call.
        """
        before, surroundings = set(threading.enumerate()), _Surroundings()
        try:
            return call()
        finally:
            for changed in surroundings.put_back():
                self._once(
                    changed,
                    f"reward   {self.who} changed {changed}, which the run needs as it was; it is put back "
                    "after each call. (Told once.)",
                )
            new = [thread for thread in threading.enumerate() if thread not in before]
            _left.update(new)
            self._growing = self._growing + 1 if new else 0
            if self._growing >= GROWING_CALLS:
                self._once(
                    "threads",
                    f"reward   {self.who} leaves threads behind: each of its last {GROWING_CALLS} calls "
                    f"started some that have not ended, now {', '.join(t.name for t in new[:3])}. End them "
                    "before returning, or keep one pool. (Told once.)",
                )

    def _once(self, what: str, line: str) -> None:
        if what not in self._told:
            self._told.add(what)
            self.tell(line)


class _Surroundings:
    """What of the process a call could change under a run's feet: its directory, torch's gradients."""

    def __init__(self) -> None:
        self._torch: Any = sys.modules.get("torch")  # not loaded for this alone
        self._gradients: bool = getattr(self._torch, "is_grad_enabled", bool)()
        self._directory = _directory()

    def put_back(self) -> Iterator[str]:
        """Yield what was changed."""
        if self._directory is not None and _directory() != self._directory:
            with suppress(OSError):  # it is gone
                os.chdir(self._directory)
            yield "the working directory"
        if self._gradients and not self._torch.is_grad_enabled():
            self._torch.set_grad_enabled(True)
            yield "torch.set_grad_enabled"


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


def unscored(fault: Exception) -> Grade:
    """The grade of a rollout that a reward failed on."""
    return Grade(None, category=REWARD_ERROR, reason=hidden(str(fault)))  # it goes into the run's files


def failed(grade: Grade) -> bool:
    """Whether a reward failed on the rollout of this grade."""
    return grade.reward is None and grade.category == REWARD_ERROR


def may_fail(reward: Any) -> bool:
    """Whether the recipe lets a run go on when this reward fails; the same on every process."""
    return hasattr(reward, "faults") and reward.faults.policy.on_error == "unscorable"


def error_shares(rewards: Iterable[Any], gather: Callable[[list[Any]], list[Any]]) -> dict[str, float]:
    """Of each reward, the rollouts it failed on / rollouts since last asked, over all processes.

    ``rewards/<name>/errors``; nothing under ``on_reward_error: stop``, which every process reads alike.
    """
    records = {r.name: r.faults for r in rewards if may_fail(r)}
    if not records:
        return {}
    counts = gather([{name: (record.failed, record.seen) for name, record in records.items()}])
    shares = {}
    for name, record in records.items():
        record.failed = record.seen = 0
        seen = sum(count[name][1] for count in counts)
        if seen:
            shares[f"rewards/{name}/errors"] = sum(count[name][0] for count in counts) / seen
    return shares


def tell_faults(rewards: Iterable[Any], note: Callable[[str], None], process: int) -> None:
    """Have faults told by `note`, a run's display; other processes than the first have none."""
    for reward in rewards:
        reward.faults.tell = (lambda line: say(f"process {process}: {line}")) if process else note


def left_threads() -> list[threading.Thread]:
    """Threads that rewards have left behind and that an exit would wait for."""
    return [thread for thread in _left if thread.is_alive() and not thread.daemon]


def rollout_in(frames: Sequence[FrameType], *batches: Sequence[Any]) -> int | None:
    """The number of the rollout that a call was at, if one of its variables holds an item of a batch."""
    places = {
        id(item): number
        for batch in batches
        for number, item in reversed(list(enumerate(batch)))
        if not isinstance(item, str) or len(item) > 1  # short texts are one object wherever they stand
    }
    for frame in reversed(frames):
        for value in frame.f_locals.values():
            if id(value) in places:
                return places[id(value)]
    return None


def file_of(function: Any) -> str | None:
    """The file that a function, or what makes an object callable, is written in."""
    code = function if inspect.isroutine(function) else type(function).__call__
    found = getattr(inspect.unwrap(code), "__code__", None)
    return found.co_filename if found else None


def place_in(frames: Sequence[FrameType], file: str | None) -> str:
    """Where a call was, as a sentence: its innermost line in `file`, else the innermost of all."""
    if not frames:
        return ""
    own = [frame for frame in frames if frame.f_code.co_filename == file]
    frame = (own or frames)[-1]
    name, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(name, line).strip()
    return f" It was in {name}:{line}, {frame.f_code.co_name}{f': `{text[:100]}`' if text else ''}."
