"""Nested subsets of a dataset, the same for every seed and every order of the file; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from trlmath.errors import DataError
from trlmath.types import Problem


def subset(problems: Sequence[Problem], size: int | None, name: str = "data") -> list[int]:
    """Return the positions of `size` problems, ascending; None: all.

    A problem's place in the draw is a hash of its content. So 128 of them are contained in 256, and neither
    `run.seed` nor the order of the file changes which they are.

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
    return sorted(sorted(range(len(problems)), key=lambda at: (_place(problems[at]), at))[:size])


def _place(problem: Problem) -> bytes:
    text = f"{problem.question}\0{problem.answer}\0{problem.trace}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
