"""YAML 1.2 in and out: ``1e-6`` is a number, ``no`` is text, a key written twice is an error."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.representer import SafeRepresenter

from trlmath.errors import RecipeError

MOST_VALUES = 100_000


def parse(text: str, where: str) -> Any:
    """Return the data of a YAML text. Raises RecipeError with `where` and the line."""
    try:
        data = YAML(typ="safe", pure=True).load(text)
        _forbid_cycles(data, where, [0])
        return data
    except RecursionError as error:
        raise RecipeError(f"{where}: nested too deeply. A recipe needs four levels or so.") from error
    except DuplicateKeyError as error:
        first = str(error.problem).splitlines()[0]
        raise RecipeError(f"{where}{_line(error)}: {first}. Write each key once.") from error
    except MarkedYAMLError as error:
        tip = "Put text that holds ':', '#', '{' or '[' in quotes."
        raise RecipeError(f"{where}{_line(error)}: not valid YAML: {error.problem}. {tip}") from error
    except (YAMLError, ValueError) as error:
        raise RecipeError(f"{where}: not valid YAML: {error}.") from error


def _forbid_cycles(data: Any, where: str, seen: list[int], above: tuple[int, ...] = ()) -> None:
    """Refuse what would not end when written out; `seen` counts values, each time an alias names them."""
    seen[0] += 1
    if seen[0] > MOST_VALUES:
        raise RecipeError(
            f"{where}: its aliases (*name) multiply to more than {MOST_VALUES:,} values. Write them out."
        )
    if not isinstance(data, (dict, list)):
        return
    if id(data) in above:
        raise RecipeError(f"{where}: an alias (*name) stands inside what it names. Write the value out.")
    for item in data.values() if isinstance(data, dict) else data:
        _forbid_cycles(item, where, seen, (*above, id(data)))


def _line(error: MarkedYAMLError) -> str:
    return f", line {error.problem_mark.line + 1}" if error.problem_mark else ""


def read(path: Path) -> Any:
    """Return the data of a YAML file. Raises RecipeError."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path} is not UTF-8 (byte {error.start}). Save it as UTF-8.") from error
    return parse(text, str(path))


class _Representer(SafeRepresenter):
    """Puts text with line ends or control characters in double quotes: the other styles lose some."""


def _represent_text(representer: SafeRepresenter, text: str) -> Any:
    style = None if text.isprintable() else '"'
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Representer.add_representer(str, _represent_text)


def dump(data: Any) -> str:
    """Return `data` as YAML, keys in the order given."""
    yaml: Any = YAML(typ="safe", pure=True)  # Any: its settings are untyped attributes
    yaml.Representer = _Representer
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.allow_unicode = True
    yaml.width = 110
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()
