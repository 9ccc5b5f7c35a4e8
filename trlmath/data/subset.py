"""Nested subsets of a dataset, the same for every seed and every order of the file; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from trlmath.errors import DataError
from trlmath.types import Problem


def subset(problems: Sequence[Problem], size: int | None, name: str = "data") -> list[int]:
    """Return the positions of `size` problems, ascending; None: all.

    A row's place in the draw is a hash of its question and gold. So 128 rows are contained in 256, neither
    `run.seed` nor the order of the file changes which they are, and two files with other traces for the same
    problems give the same problems. Several traces of one problem are drawn apart from each other.

    Raises:
        DataError: fewer than `size` are there.
    """
    if size is None:
        return list(range(len(problems)))
    if size > len(problems):
        raise DataError(
            f"data.train_size asks for {size} rows, and {name!r} leaves {len(problems)} after the filters. "
            "Set it to at most that, or to `all`."
        )
    return sorted(_draw(problems)[:size])


def _draw(problems: Sequence[Problem]) -> list[int]:
    """All positions in the order drawn: by a hash of question, gold and the number among its traces."""
    alike: dict[str, list[int]] = {}
    for at, problem in enumerate(problems):
        alike.setdefault(f"{problem.question}\0{problem.answer}", []).append(at)
    places = {}
    for text, rows in alike.items():
        # Numbered by content, so that a problem with one trace has the same place whatever the trace is.
        for number, at in enumerate(sorted(rows, key=lambda at: (_hash(problems[at].trace or ""), at))):
            places[at] = _hash(f"{text}\0{number}")
    return sorted(places, key=places.__getitem__)


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
