"""Checks that import plugins or TRL: made before any weight loads, and not by `load_recipe`."""

from __future__ import annotations

import enum
import math
import typing
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from trlmath.components import Kind
from trlmath.errors import RecipeError, TrlmathError, nearest
from trlmath.options import type_name
from trlmath.plugins import registry
from trlmath.recipe.machine_checks import check_machine
from trlmath.recipe.owned import IDLE_BY, OWNED_BY
from trlmath.recipe.schema import Recipe, Ref
from trlmath.targets import is_path

# TRL reads these only when the first loss is computed, after a whole rollout phase.
_CHOICES = {
    "loss_type": ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "vespo", "luspo"),
    "importance_sampling_level": ("token", "sequence"),
    "log_level": ("detail", "debug", "info", "warning", "error", "critical", "passive"),
    "log_level_replica": ("detail", "debug", "info", "warning", "error", "critical", "passive"),
}
_SFT_CHOICES = {"loss_type": ("nll", "dft")}
_CHOICES_OF = {"sft": _SFT_CHOICES, "expert_iteration": _SFT_CHOICES}

# What torch and transformers refuse only in the middle of a run, or not at all: (test, allowed).
_AT_LEAST_0 = (lambda v: v >= 0, "at least 0")
_OVER_0 = (lambda v: v > 0, "more than 0")
_BELOW_1 = (lambda v: 0 <= v < 1, "at least 0 and less than 1")
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_steps": (lambda v: v == -1 or v >= 1, "at least 1, or -1 to train for num_train_epochs"),
    "num_train_epochs": _OVER_0,
    "learning_rate": _AT_LEAST_0,
    "weight_decay": _AT_LEAST_0,
    "adam_beta1": _BELOW_1,
    "adam_beta2": _BELOW_1,
    "adam_epsilon": _AT_LEAST_0,
    "max_grad_norm": _AT_LEAST_0,
    "beta": _AT_LEAST_0,
    "epsilon": _AT_LEAST_0,
    "epsilon_high": _AT_LEAST_0,
    "logging_steps": _OVER_0,
    "save_steps": _OVER_0,
    "dataloader_num_workers": _AT_LEAST_0,
    "top_entropy_quantile": (lambda v: 0 < v <= 1, "more than 0 and at most 1"),
}


def check_components(recipe: Recipe) -> None:
    """Resolve every component that the recipe names and check its options.

    Raises PluginError (no such name, broken plugin) or RecipeError (options), all of them in one message.
    """
    named: list[tuple[Kind, str, Ref]] = [("reward", f"rewards.{i}", r) for i, r in enumerate(recipe.rewards)]
    named += [("advantage", "advantage", recipe.advantage)]
    named += [("filter", f"filters.{i}", r) for i, r in enumerate(recipe.filters)]
    named += [("prompt", "data.prompt", recipe.data.prompt), ("dataset", "data.train", recipe.data.train)]
    named += [("dataset", "data.eval", recipe.data.eval)] if recipe.data.eval else []
    components = registry()
    errors: list[TrlmathError] = []
    for kind, key, ref in named:
        if kind in ("prompt", "dataset") and not is_path(ref.name) and ("/" in ref.name or "." in ref.name):
            continue  # a file or a Hub id: read by the data room
        try:
            components.resolve(kind, ref.name).check(ref.options)
        except TrlmathError as error:
            errors.append(type(error)(f"{key}: {error}"))
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise type(errors[0])("\n".join(str(error) for error in errors))


def check_trainer(recipe: Recipe, algorithm: str = "grpo") -> None:
    """Check `recipe.trainer` against the TRL config of `algorithm` and convert its values, in place.

    Imports TRL, loads no weights. Raises RecipeError naming every unknown argument and wrong value.
    """
    import trl

    config = trl.GRPOConfig if algorithm == "grpo" else trl.SFTConfig  # expert iteration trains by SFT
    owned, idle = OWNED_BY[algorithm], IDLE_BY[algorithm]
    choices_of = {**_CHOICES, **_CHOICES_OF.get(algorithm, {})}
    hints = typing.get_type_hints(config)
    allowed = [field.name for field in fields(config) if field.init and field.name not in owned]
    converted, errors = {}, []
    for name, value in recipe.trainer.items():
        key = f"trainer.{name}"
        if name in owned:
            errors.append(f"{key}: is decided by {owned[name]}; write it there and remove it here.")
            continue
        if name in idle:
            errors.append(f"{key}: has no effect: {idle[name]}. Remove it.")
            continue
        if name not in allowed:
            errors.append(f"{key}: is no argument of TRL's {config.__name__}.{nearest(name, allowed)}")
            continue
        try:
            converted[name] = _converter(hints[name])(value)
        except (ValidationError, ValueError) as error:
            message = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            errors.append(f"{key}: got {value!r}; allowed: {type_name(hints[name])} ({message}).")
            continue
        choices = choices_of.get(name) or _enum_values(hints[name])
        if choices and isinstance(value, str) and value not in choices:
            errors.append(f"{key}: got {value!r}; allowed: {', '.join(choices)}.{nearest(value, choices)}")
        errors += _out_of_range(name, converted[name])
    errors += _reporters(recipe.run.report_to or ())
    if errors:
        raise RecipeError("\n".join(errors))
    check_machine(converted)
    recipe.trainer = converted


def _out_of_range(name: str, value: Any) -> list[str]:
    if not isinstance(value, (int, float)):
        return []
    if not math.isfinite(value):
        return [f"trainer.{name}: got {value}; allowed: a finite number."]
    fits, allowed = _RANGES.get(name, (None, ""))
    return [] if fits is None or fits(value) else [f"trainer.{name}: got {value}; allowed: {allowed}."]


def _reporters(names: Sequence[str]) -> list[str]:
    """A sentence for each of `run.report_to` that transformers does not know or that is not installed."""
    from transformers.integrations import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations

    errors, known = [], list(INTEGRATION_TO_CALLBACK)
    for name in names:
        if name in ("all", "none"):
            continue
        if name not in known:
            errors.append(f"run.report_to: got {name!r}; allowed: {', '.join(known)}.{nearest(name, known)}")
        elif name not in get_available_reporting_integrations():
            errors.append(f"run.report_to: {name!r} is not installed. Install it (pip install {name}).")
    return errors


def _converter(hint: Any) -> Callable[[Any], Any]:
    members = typing.get_args(hint) or (hint,)
    adapter: TypeAdapter[Any] = TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))

    def convert(value: Any) -> Any:
        if isinstance(value, bool) and bool not in members and (int in members or float in members):
            raise ValueError("a number is needed, not true or false")
        return adapter.validate_python(value)

    return convert


def _enum_values(hint: Any) -> tuple[str, ...]:
    for member in typing.get_args(hint) or (hint,):
        if isinstance(member, type) and issubclass(member, enum.Enum):
            return tuple(str(item.value) for item in member)
    return ()
