"""One tree of errors. Each says what was given, what is allowed, and what to do next."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable

from trlmath.secrets import hidden


class TrlmathError(Exception):
    """Base of every error that trlmath raises on purpose."""


class RecipeError(TrlmathError):
    """A recipe (YAML file or override) asks for something that cannot be."""


class PluginError(TrlmathError):
    """A component or the plugin that offers it is missing, broken or misbehaves."""


class DataError(TrlmathError):
    """A dataset is empty, unreadable or lacks what the recipe needs."""


class GradingError(TrlmathError):
    """The grader itself (not an answer) cannot work."""


class EngineError(TrlmathError):
    """A generation engine cannot start, failed, or generates from stale weights."""


class TrainingError(TrlmathError):
    """Training has gone wrong in a way that going on would not mend."""


def say(line: str) -> None:
    """Tell a line on standard error, where no run has a display."""
    print(visible(line), file=sys.stderr, flush=True)


def nearest(given: str, allowed: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest of `allowed`, or an empty string."""
    match = difflib.get_close_matches(str(given), [str(a) for a in allowed], n=1, cutoff=0.5)
    return f" Did you mean {match[0]!r}?" if match else ""


def visible(error: object) -> str:
    """Return the text of an error, or any other, as it may be shown: nothing in it steers, nothing is secret.

    Control and direction characters, and halves of characters, become their escapes; tokens are masked.
    """
    text = hidden(str(error))
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)
