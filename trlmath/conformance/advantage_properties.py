"""Properties of advantages: shape, zeros where they belong, finite, blind to order."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from trlmath.conformance import samples
from trlmath.conformance.core import Broken, Skipped, for_all, prop, shown
from trlmath.conformance.subject import Subject, call_advantage

Rewards = list[list[float | None]]
TOLERANCE = 1e-4


def advantages(subject: Subject, rewards: Rewards, dtype: Any = None, device: str = "cpu") -> Any:
    """The advantage's own tensor. Raises Broken when it raises or changes shape."""
    try:
        found = call_advantage(subject.make(), rewards, dtype, device)
    except Exception as error:
        raise Broken(f"rewards {shown(rewards)}: {type(error).__name__}: {error}") from error
    if list(getattr(found, "shape", ())) != [len(rewards), len(rewards[0])]:
        raise Broken(f"rewards {shown(rewards)} give {shown(found)}")
    return found


def _close(one: Any, other: Any) -> bool:
    scale = max(1.0, float(one.abs().max()), float(other.abs().max()))
    return bool((one - other).abs().max() <= TOLERANCE * scale)


@prop("shape", "keeps shape, dtype and device", "advantage")
def shape(subject: Subject) -> None:
    import torch

    tried: list[Rewards] = [[[1.0, 0.0]], [[1.0], [0.0], [2.0]], [[0.0, 1.0, None], [1.0, 1.0, 0.5]]]
    devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
    for dtype, device in itertools.product((torch.float32, torch.float64), devices):
        for rewards in tried:
            found = advantages(subject, rewards, dtype, device)
            if found.dtype != dtype or found.device.type != device:
                raise Broken(f"rewards {rewards} in {dtype} on {device} give {found.dtype} on {found.device}")


@prop("constant groups", "a group of equal rewards gets exactly 0", "advantage")
def constant_groups(subject: Subject) -> None:
    for value in (0.0, 1.0, 0.1, -3.7):
        for size in (1, 3, 8):
            found = advantages(subject, [[value] * size] * 2)
            if bool((found != 0).any()):
                raise Broken(f"{[[value] * size] * 2} gives {found.tolist()}")


@prop("finite", "is finite for groups of one, for NaN and for huge rewards", "advantage")
def finite(subject: Subject) -> None:
    import torch

    def check(rewards: Rewards) -> None:
        found = advantages(subject, rewards)
        if not bool(torch.isfinite(found).all()):
            raise Broken(f"rewards {rewards} (None: NaN) give {found.tolist()}")

    edges: list[Rewards] = [[[1.0]], [[None]], [[None, None]], [[1e15, -1e15, 0.0]], [[1e-30, 0.0]]]
    for rewards in edges:
        check(rewards)
    for_all(samples.matrices(), check)


@prop("NaN is 0", "a rollout that could not be scored gets exactly 0, and no peer notices it", "advantage")
def nan_is_zero(subject: Subject) -> None:
    def check(rewards: Rewards) -> None:
        found = advantages(subject, rewards)
        for g, row in enumerate(rewards):
            for i, reward in enumerate(row):
                if reward is None and float(found[g, i]) != 0.0:
                    raise Broken(f"rewards {rewards} give {found[g, i].item()} in group {g}, rollout {i}")

    for_all(samples.matrices(), check)


@prop(
    "equivariant", "shuffling rollouts within groups, or groups, shuffles the advantages alike", "advantage"
)
def equivariant(subject: Subject) -> None:
    def check(rewards: Rewards) -> None:
        found = advantages(subject, rewards)
        flipped = advantages(subject, [row[::-1] for row in rewards]).flip(1)
        turned = advantages(subject, rewards[::-1]).flip(0)
        for what, other in (("rollouts reversed", flipped), ("groups reversed", turned)):
            if not _close(found, other):
                raise Broken(f"rewards {rewards} give {found.tolist()}; {what} {other.tolist()}")

    if {"lengths", "parts", "mask"} & set(_parameters(subject)):
        raise Skipped("it reads more than the rewards, which would have to be shuffled too")
    for_all(samples.matrices(), check)


@prop("independent groups", "a group's advantages do not depend on the other groups", "advantage")
def independent_groups(subject: Subject) -> None:
    def check(rewards: Rewards) -> None:
        together = advantages(subject, rewards)
        for g, row in enumerate(rewards):
            alone = advantages(subject, [row])
            if not _close(alone[0], together[g]):
                raise Broken(f"{row} alone gives {alone[0].tolist()}; in {rewards} {together[g].tolist()}")

    if {"lengths", "parts", "mask"} & set(_parameters(subject)):
        raise Skipped("it reads more than the rewards")
    for_all(samples.matrices(), check)


@prop("centred", "where it says so, each group (or the whole batch) sums to 0", "advantage")
def centred(subject: Subject) -> None:
    if not subject.hints.get("centred"):
        raise Skipped("it does not claim to be centred")

    def check(rewards: Rewards) -> None:
        found = advantages(subject, rewards)
        scale = max(1.0, float(found.abs().sum()))
        whole, rows = abs(float(found.sum())), float(found.sum(1).abs().max())
        if min(whole, rows) > TOLERANCE * scale:
            raise Broken(f"rewards {rewards} give {found.tolist()}, which sum to {whole}")

    for_all(samples.matrices(), check)


@prop("inputs untouched", "changes nothing of what it is given", "advantage")
def inputs_untouched(subject: Subject) -> None:
    import torch

    rewards = torch.tensor([[1.0, 0.0, 2.0], [0.5, float("nan"), 1.0]])
    extra = {"lengths": torch.ones(2, 3), "parts": rewards.unsqueeze(-1).clone(), "mask": rewards == rewards}
    given = {"rewards": rewards, **{k: v for k, v in extra.items() if k in _parameters(subject)}}
    before = copy.deepcopy(given)
    subject.make()(**given)
    for name, value in before.items():
        if not torch.equal(value.nan_to_num(-99.0), given[name].nan_to_num(-99.0)):
            raise Broken(f"its argument {name!r} was {value.tolist()}, then {given[name].tolist()}")


def _parameters(subject: Subject) -> list[str]:
    import inspect

    return list(inspect.signature(subject.make()).parameters)
