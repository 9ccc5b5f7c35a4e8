"""What a plugin may offer, observe and decide: every hook of trlmath, on one page.

A plugin is a module (or object) named by an entry point of the group ``trlmath``; it implements any of
these functions with ``@hookimpl``. It only *offers*: no component acts unless a recipe names it. No
hook hands out the trainer. Hooks that observe are called on the main process only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trlmath.components import Register
    from trlmath.recipe import Recipe
    from trlmath.types import Grade, Group, Rollout

PROJECT = "trlmath"
# Raised when a hook or a component's contract changes so that a plugin must change. A plugin may declare
# the one it was written for: `trlmath_api = 1` at the top of its module.
API = 1
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True)
class RunView:
    """What hooks see of a run: where it writes and what it was asked to do, never the trainer."""

    directory: Path
    recipe: Recipe


# --- offer: call register(name, target) once for every component -----------------------------------


@hookspec
def register_rewards(register: Register) -> None:
    """Offer rewards: callables over keyword arguments (``completions``, dataset columns, ...)."""


@hookspec
def register_advantages(register: Register) -> None:
    """Offer advantages: ``(rewards: Tensor[groups, size]) -> Tensor[groups, size]``."""


@hookspec
def register_filters(register: Register) -> None:
    """Offer filters: ``(item) -> Keep | Drop`` with a ``moment`` (``example``, ``group``, ``trace``).

    Optional methods for decisions over several items: ``select``, ``begin``, ``recall`` (docs/plugins.md).
    """


@hookspec
def register_prompts(register: Register) -> None:
    """Offer prompt templates: ``trlmath.Prompt`` objects."""


@hookspec
def register_datasets(register: Register) -> None:
    """Offer datasets: classes with ``load(split) -> Iterable[Problem]``."""


# --- observe: look, and return nothing -------------------------------------------------------------


@hookspec
def run_started(run: RunView) -> None:
    """A run begins; `run` has ``directory`` (Path) and ``recipe`` (the resolved recipe)."""


@hookspec
def rows_filtered(ledger: Sequence[Any]) -> None:
    """Example filters have run; `ledger` lists every dropped row with filter and reason."""


@hookspec
def rollouts_scored(batch: Sequence[Group], step: int) -> None:
    """The rollouts of one phase are graded; `batch` holds all processes' groups."""


@hookspec
def evaluated(report: Any, step: int) -> None:
    """An evaluation has finished; `report` holds its metrics."""


@hookspec
def checkpoint_saved(path: Path, step: int) -> None:
    """A checkpoint lies complete at `path`."""


@hookspec
def run_finished(run: RunView, summary: dict[str, Any]) -> None:
    """A run ended normally; `summary` holds what the final table shows."""


@hookspec
def report_sections(run: RunView) -> list[tuple[str, str]] | None:
    """Return (title, text) pairs to append to the run's report; the text is shown as text, never as HTML."""


# --- decide: the first answer that is not None wins ------------------------------------------------


@hookspec(firstresult=True)
def classify(rollout: Rollout, grade: Grade) -> str | None:
    """Return a category for a graded rollout, or None to leave it to the next."""
