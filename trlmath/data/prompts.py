"""Prompt templates: text with ``{question}``, kept byte for byte, and the stop string that ends an answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trlmath.components import resolve
from trlmath.errors import PluginError, RecipeError

FOLDER = Path(__file__).parent / "templates"
PLACEHOLDER = "{question}"
SUFFIXES = (".prompt", ".txt")
_BUILTIN = {
    "r1_zero": (
        "</answer>",
        "CS336's prompt, after DeepSeek-R1-Zero (arXiv:2501.12948): think, then answer in tags.",
    ),
    "question_only": (None, "The bare question."),
}


@dataclass(frozen=True)
class Prompt:
    """A named template.

    Attributes:
        name: what a recipe writes.
        template: text with ``{question}``; every other brace is plain text.
        stop: the string that ends a completion, or None to end at the end-of-text token only.
        doc: one line for ``trlmath plugins list``.
    """

    name: str
    template: str
    stop: str | None = None
    doc: str = ""

    def __post_init__(self) -> None:
        if PLACEHOLDER not in self.template:
            raise RecipeError(f"the prompt {self.name!r} has no {PLACEHOLDER}: {self.template[:80]!r}")

    def render(self, question: str) -> str:
        """Return the prompt for one question. Plain replacement: questions and templates may hold braces."""
        return self.template.replace(PLACEHOLDER, question)

    @property
    def sha256(self) -> str:
        """Hash of the template's UTF-8 bytes, for the manifest."""
        return hashlib.sha256(self.template.encode("utf-8")).hexdigest()


def read_prompt(path: str | Path, name: str | None = None, stop: str | None = None, doc: str = "") -> Prompt:
    """Read a template file byte for byte (no newline translation). Raises RecipeError."""
    path = Path(path).expanduser()
    try:
        template = path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise RecipeError(
            f"there is no prompt file {path}. Give a registered prompt's name or a file."
        ) from error
    except UnicodeDecodeError as error:
        raise RecipeError(
            f"the prompt file {path} is not UTF-8 (byte {error.start}). Save it as UTF-8."
        ) from error
    return Prompt(name or path.stem, template, stop, doc or f"Read from {path}.")


def builtin_prompts() -> list[Prompt]:
    """Return the prompts that ship with the package: those of CS336's assignment 5."""
    return [read_prompt(FOLDER / f"{name}.prompt", name, stop, doc) for name, (stop, doc) in _BUILTIN.items()]


def load_prompt(name: str, options: Mapping[str, Any] | None = None) -> Prompt:
    """Return a prompt by name: registered, ``module:attr``, ``file.py:attr`` or a template file.

    A template file (``.prompt``, ``.txt``) takes the option ``stop``. Raises RecipeError and PluginError.
    """
    options = dict(options or {})
    if name.endswith(SUFFIXES):
        unknown = set(options) - {"stop"}
        if unknown:
            raise RecipeError(
                f"a prompt file has no option {sorted(unknown)[0]!r}; its only option is `stop`."
            )
        return read_prompt(name, stop=options.get("stop"))
    component = resolve("prompt", name)
    prompt = component.build(options)
    if not isinstance(prompt, Prompt):
        raise PluginError(
            f"prompt {name!r} ({component.origin}) is a {type(prompt).__name__}, not a trlmath.Prompt."
        )
    return prompt
