"""A hash of a dataset's rows: two runs with the same one were given the same problems in the same order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from trlmath.types import Problem


def fingerprint(problems: Iterable[Problem]) -> str:
    """SHA-256 over question, answer, solution, trace and metadata of each problem, in order."""
    digest = hashlib.sha256()
    for p in problems:
        row = [p.question, p.answer, p.solution, p.trace, dict(p.metadata)]
        digest.update(json.dumps(row, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()
