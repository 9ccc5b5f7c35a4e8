"""What a sampling phase has drawn so far, kept chunk by chunk: a kill costs the chunk in progress only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from trlmath.data.lineage import from_json, to_json
from trlmath.types import Group, Rollout


class SampledSoFar:
    """The graded groups of whole chunks, a line each in one file.

    A line that is damaged, or that a kill has cut, counts as not there: its chunk is drawn again, with the
    same seed.

    Args:
        file: of one phase; whoever keeps the phase as a whole removes it.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> dict[int, list[Group]]:
        """Number of a chunk -> its groups, without their problems."""
        if not self.file.exists():
            return {}
        found: dict[int, list[Group]] = {}
        for line in self.file.read_bytes().split(b"\n"):
            digest, _, text = line.partition(b" ")
            if text and digest.decode("ascii", "replace") == _digest(text):
                told = json.loads(text)
                found[told["chunk"]] = [_group(row) for row in told["groups"]]
        return found

    def add(self, chunk: int, groups: Sequence[Group]) -> None:
        """Keep a chunk."""
        rows = [
            {
                "prompt": group.prompt,
                "prompt_ids": list(group.prompt_ids),
                "rollouts": [
                    {f.name: to_json(getattr(rollout, f.name)) for f in fields(Rollout)}
                    for rollout in group.rollouts
                ],
            }
            for group in groups
        ]
        text = json.dumps({"chunk": chunk, "groups": rows}).encode()  # escaped: half a character is no UTF-8
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as stream:
            # begun anew: the line before may have been cut by a kill
            stream.write(b"\n%s %s\n" % (_digest(text).encode(), text))


def _group(row: dict[str, Any]) -> Group:
    rollouts = [from_json(told) for told in row["rollouts"]]
    for told in rollouts:
        for name in ("token_ids", "logprobs"):
            told[name] = None if told[name] is None else tuple(told[name])
    return Group(row["prompt"], tuple(row["prompt_ids"]), tuple(Rollout(**told) for told in rollouts))


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
