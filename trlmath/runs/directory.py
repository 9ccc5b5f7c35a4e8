"""RunDirectory: where a run's files are, written so that a killed run leaves them readable."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trlmath.errors import RecipeError, visible
from trlmath.secrets import hidden, without_values


class RunDirectory:
    """The files of one run.

    Args:
        path: the directory; made when missing.
        again: the caller has made sure that what is there may be continued.

    Raises:
        RecipeError: it holds a run already, or cannot be written.
    """

    def __init__(self, path: Path, again: bool = False) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            taken = (path / "recipe.yaml").exists()
        except OSError as error:
            raise RecipeError(
                f"run.dir={path} cannot be written: {error}. Choose another run.dir."
            ) from error
        if taken and not again:
            raise RecipeError(
                f"run.dir={path} already holds a run (it has a recipe.yaml). Choose another run.dir, or "
                "remove it; nothing in it was changed."
            )

    @property
    def samples(self) -> Path:
        """The rows of evaluations."""
        return self.path / "evaluation" / "samples.jsonl"

    @property
    def checkpoints(self) -> Path:
        """What the trainer saves."""
        return self.path / "checkpoints"

    def write_text(self, name: str, text: str) -> None:
        """Write a whole file at once: readers see the old one or the new one."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        with beside.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the new name with nothing in it
        beside.replace(target)

    def write_json(self, name: str, value: Any) -> None:
        """Write a whole JSON file at once, without the secrets that a command line may have held."""
        self.write_text(name, hidden(json.dumps(value, indent=2, ensure_ascii=False, default=str)) + "\n")

    def clear_leftovers(self) -> None:
        """Remove what a kill has left half written; for the one process that writes here."""
        for pattern in (".*.json.*", ".*.yaml.*", "state/.*", "rollouts/*.tmp", "evaluation/.*.resume"):
            for file in self.path.glob(pattern):
                file.unlink()

    def log(self, text: str) -> None:
        """Append a line to ``console.log``, control characters shown as escapes."""
        with (self.path / "console.log").open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(visible(text) + "\n")

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Append one line of JSON; NaN and infinities become null, so that every reader can read it."""
        clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
        with (self.path / name).open("a", encoding="utf-8", errors="backslashreplace") as file:
            # data stays as it is but for this machine's own secrets, which an error's text may have told
            file.write(without_values(json.dumps(clean, ensure_ascii=False, default=str)) + "\n")


def new_run_path(recipe_name: str) -> Path:
    """``runs/<recipe>-<time>`` in the working directory, not yet taken."""
    base = Path("runs") / f"{recipe_name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = base, 2
    while path.exists():
        path, number = base.with_name(f"{base.name}-{number}"), number + 1
    return path
