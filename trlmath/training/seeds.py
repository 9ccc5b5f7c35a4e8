"""A seed of its own for each place of a run."""

from __future__ import annotations

import hashlib


def seed_of(seed: int, *where: object) -> int:
    """A seed in [0, 2**31) of its own for each place of a run, such as ``("sample", iteration, chunk)``.

    Nothing is drawn from a generator that an earlier phase has moved on, so that a continued run draws
    what the uninterrupted one would have drawn.
    """
    text = "/".join(map(str, (seed, *where)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
