"""Tokens, keys and passwords: taken out of whatever is shown or kept, and refused in recipes.

A secret is known by where it stands (an environment variable called ``..._TOKEN``, ``..._KEY``, ``...SECRET``
or ``...PASSWORD``, or named on the command line as one that holds a key; the ``user:password@`` of a URL)
or by how it looks (the Hub's ``hf_...``, ``sk-...``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

MASK = "***"
_VARIABLE = re.compile(r"(TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST = 8  # characters: masking a shorter value would blot out ordinary words
_LOGIN = re.compile(r"(?<=://)[^\s/@:?#\"'<>]*:[^\s/@?#\"'<>]+(?=@)")
_SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{24,}|\bsk-[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\bAKIA[A-Z0-9]{16}\b|(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{16,}"
)
_MARKS = ("hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "xox", "AKIA", "earer ")
# `token` alone is no secret here: recipes speak of pad_token and stop tokens
_KEY = re.compile(
    r"(^|[_-])(api_?key|password|passwd|passphrase|secret|secret_key|credentials?|private_key|access_key"
    r"|(hub|hf|auth|api|access|bearer|secret)_?token)$",
    re.IGNORECASE,
)
_NAME_OF_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


_pointed_at: set[str] = set()


def of_variable(name: str) -> str:
    """The value of the environment variable `name`, which holds a secret whatever it is called; "" if unset.

    From then on it is masked as those are that are called like one.
    """
    _pointed_at.add(name)
    return os.environ.get(name, "")


def without_values(text: str) -> str:
    """Return `text` with the values of secret environment variables masked, and nothing else touched."""
    values = {os.environ.get(name, "") for name in (*_names(tuple(os.environ)), *_pointed_at)}
    for value in sorted(values, key=len, reverse=True):  # the longer first: one may be part of another
        if len(value) >= _SHORTEST and value in text:
            text = text.replace(value, MASK)
    return text


def hidden(text: str) -> str:
    """Return `text` with everything masked that is a secret by its place or looks like one."""
    text = without_values(text)
    if "://" in text:
        text = _LOGIN.sub(MASK, text)
    if any(mark in text for mark in _MARKS):  # many times faster than the search itself
        text = _SHAPES.sub(MASK, text)
    return text


def secrets_in(data: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted keys of plain data whose value is a secret; the name of a variable is none."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from secrets_in(value, f"{path}.{key}" if path else str(key))
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            yield from secrets_in(value, f"{path}.{index}")
    elif isinstance(data, str) and data:
        named = _KEY.search(path.rsplit(".", 1)[-1]) and not _NAME_OF_VARIABLE.fullmatch(data)
        if named or hidden(data) != data:
            yield path


@lru_cache(maxsize=2)
def _names(variables: tuple[str, ...]) -> list[str]:
    """Those that hold a secret; kept, as this is asked for every text that is shown."""
    return [name for name in variables if _VARIABLE.search(name)]
