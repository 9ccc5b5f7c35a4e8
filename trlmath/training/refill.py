"""Dynamic sampling (DAPO, arXiv 2503.14476): roll out further prompts until a step has enough useful groups.

Decided on gathered groups, so that every process goes through the same rounds. Further prompts come in an
order that depends on the run's seed and the step alone: a resumed run draws the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from trlmath.data.filtering import LedgerEntry
from trlmath.types import Group


@dataclass
class Drawn:
    """What one step rolled out, over all rounds and processes.

    Attributes:
        groups: graded, in the order they were drawn.
        rows: the dataset row of each group.
        matrix: rewards [groups x size, functions].
        dropped: an entry for each group that a filter dropped, its ``index`` within `groups`.
        rounds: refills made.
    """

    groups: list[Group] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    matrix: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    dropped: list[LedgerEntry] = field(default_factory=list)
    rounds: int = 0

    def useful(self) -> list[int]:
        """Numbers of the groups that no filter dropped."""
        out = {entry.index for entry in self.dropped}
        return [i for i in range(len(self.groups)) if i not in out]

    def chosen(self, needed: int) -> list[int]:
        """Numbers of the `needed` groups of the step: useful ones first drawn, dropped ones where too few."""
        useful = self.useful()[:needed]
        rest = sorted(entry.index for entry in self.dropped)
        return sorted(useful + rest[: needed - len(useful)])

    def matrix_of(self, numbers: Sequence[int]) -> torch.Tensor:
        """Rewards of some groups, [groups x size, functions]."""
        size = len(self.matrix) // len(self.groups)
        return torch.cat([self.matrix[i * size : (i + 1) * size] for i in numbers])


def draw(
    rows: Sequence[int],
    max_rounds: int,
    roll_out: Callable[[list[int]], tuple[list[Group], torch.Tensor]],
    decide: Callable[[list[Group]], list[LedgerEntry]],
    further: Iterator[int],
    processes: int = 1,
) -> Drawn:
    """Roll out `rows`, then further ones until as many groups as rows are useful.

    Args:
        rows: dataset rows of the step, of all processes together.
        max_rounds: refills at most.
        roll_out: rolls out and grades rows, a multiple of `processes` many; gives all processes' groups and
            rewards.
        decide: ledger entries of the groups to drop, alike on every process.
        further: dataset rows to go on with; may end.
        processes: each takes an equal share of a round.
    """
    drawn, wanted = Drawn(), list(rows)
    while wanted:
        groups, matrix = roll_out(wanted)
        before = len(drawn.groups)
        for entry in decide(groups):
            drawn.dropped.append(replace(entry, index=entry.index + before))
        drawn.groups += groups
        drawn.rows += wanted
        drawn.matrix = torch.cat([drawn.matrix, matrix]) if before else matrix
        missing = len(rows) - len(drawn.useful())
        if missing <= 0 or drawn.rounds == max_rounds:
            break
        share = -(-missing // processes)
        wanted = [row for _, row in zip(range(share * processes), further, strict=False)]
        wanted = wanted[: len(wanted) // processes * processes]
        drawn.rounds += bool(wanted)
    return drawn


def further_rows(total: int, taken: Sequence[int], seed: int, step: int) -> Iterator[int]:
    """The other rows of a dataset of `total`, in an order of this seed and step."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + step) % 2**63)
    out = set(taken)
    return (row for row in torch.randperm(total, generator=generator).tolist() if row not in out)
