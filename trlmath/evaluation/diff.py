"""Two evaluations compared over the same problems: difference, interval, exact test, flips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trlmath.errors import DataError, nearest
from trlmath.evaluation.intervals import bootstrap, newcombe_paired, sign_test
from trlmath.evaluation.report import Rate
from trlmath.evaluation.sample import Sample
from trlmath.evaluation.store import read_samples

NEWCOMBE = "Newcombe's 95 % interval for paired rates (method 10)"
BOOTSTRAP = "95 % bootstrap interval over problems, paired"
ALIKE = (
    "every problem changed alike: 95 % bound on the share that could have changed otherwise (Wilson, 0 of n)"
)
MCNEMAR = "exact McNemar test"
SIGN = "exact sign test over the problems that changed"


@dataclass(frozen=True)
class Flip:
    """A problem whose result changed: `first` and `second` are its shares of samples that have the part."""

    question: str
    gold: str | None
    first: float
    second: float
    first_sample: Sample
    second_sample: Sample


@dataclass(frozen=True)
class Difference:
    """The second evaluation against the first, over the problems that both hold.

    Attributes:
        part: what is compared.
        problems: in both; `only_first` and `only_second` are in one alone.
        first, second: the rates over the common problems.
        difference: second minus first, with its interval.
        interval, test: which ones they are.
        better, worse, same: problems.
        p_value: two-sided.
        flips: changed problems, largest change first; gains before losses.
    """

    part: str
    problems: int
    only_first: int
    only_second: int
    first: float
    second: float
    difference: Rate
    interval: str
    test: str
    better: int
    worse: int
    same: int
    p_value: float
    flips: tuple[Flip, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        rows = [
            {
                "question": f.question,
                "gold": f.gold,
                "first": f.first,
                "second": f.second,
                "first_category": f.first_sample.category,
                "second_category": f.second_sample.category,
                "first_completion": f.first_sample.completion,
                "second_completion": f.second_sample.completion,
            }
            for f in self.flips
        ]
        plain = {k: v for k, v in vars(self).items() if k not in ("flips", "difference")}
        return {**plain, "difference": asdict(self.difference), "flips": rows}


def load_side(path: Path, setting: str | None = None) -> list[Sample]:
    """Read one side: ``samples.jsonl``, the folder of an evaluation, or that of a training run.

    Args:
        setting: needed where the file holds several.

    Raises:
        DataError: no such file, no such setting, or several and none is named.
    """
    file = samples_file(path)
    rows = read_samples(file)
    there = list(dict.fromkeys(row.setting for row in rows))
    if setting is None and len(there) > 1:
        raise DataError(f"{file} holds several settings: {', '.join(there)}. Name one with --setting.")
    if setting is not None and setting not in there:
        raise DataError(
            f"{file} holds no setting {setting!r}.{nearest(setting, there)} There: {', '.join(there)}."
        )
    return [row for row in rows if setting is None or row.setting == setting]


def samples_file(path: Path) -> Path:
    """The samples of a folder, which may be an evaluation's or a training run's. Raises DataError."""
    if not path.is_dir():
        return path
    for name in ("samples.jsonl", "evaluation/samples.jsonl"):
        if (path / name).is_file():
            return path / name
    raise DataError(f"{path} holds no samples.jsonl. Give the folder of an evaluation, or the file.")


def compare(first: Sequence[Sample], second: Sequence[Sample], part: str = "both") -> Difference:
    """Pair the problems (by question and gold, whatever their order) and compare `part`.

    Raises:
        DataError: no problem in common, or no such part.
    """
    one, two = _by_key(first), _by_key(second)
    common = [key for key in one if key in two]
    if not common:
        raise DataError(
            "the two evaluations have no problem in common (same question and gold). Evaluate both on the "
            "same dataset."
        )
    for rows in (first, second):
        parts = sorted({name for row in rows for name in row.parts})
        if part not in (*parts, "reward"):
            raise DataError(f"no completion has the part {part!r}.{nearest(part, parts)} There: {parts}.")
    values = [(_share(one[key], part), _share(two[key], part)) for key in common]
    changes = [b - a for a, b in values]
    better, worse = sum(c > 0 for c in changes), sum(c < 0 for c in changes)
    single = all(v in (0.0, 1.0) for pair in values for v in pair) and all(
        len(side[key]) == 1 for side in (one, two) for key in common
    )
    if single:
        both = sum(a == b == 1.0 for a, b in values)
        low, high = newcombe_paired(both, worse, better, len(common) - both - better - worse)
    else:
        low, high = bootstrap(changes, bounds=(-1.0, 1.0))
    several = ALIKE if min(changes) == max(changes) else BOOTSTRAP
    flips = [
        Flip(
            question=one[key][0].question,
            gold=one[key][0].gold,
            first=a,
            second=b,
            first_sample=_telling(one[key], a > b, part),
            second_sample=_telling(two[key], b > a, part),
        )
        for key, (a, b) in zip(common, values, strict=True)
        if a != b
    ]
    flips.sort(key=lambda flip: (flip.second < flip.first, -abs(flip.second - flip.first)))
    return Difference(
        part=part,
        problems=len(common),
        only_first=len(one) - len(common),
        only_second=len(two) - len(common),
        first=sum(a for a, _ in values) / len(common),
        second=sum(b for _, b in values) / len(common),
        difference=Rate(sum(changes) / len(common), low, high),
        interval=NEWCOMBE if single else several,
        test=MCNEMAR if single else SIGN,
        better=better,
        worse=worse,
        same=len(common) - better - worse,
        p_value=sign_test(better, worse),
        flips=tuple(flips),
    )


def _by_key(rows: Sequence[Sample]) -> dict[tuple[str, int], list[Sample]]:
    """Samples of each problem; one that stands several times in the data keeps its places apart."""
    numbers: dict[str, list[int]] = {}
    found: dict[tuple[str, int], list[Sample]] = {}
    for row in sorted(rows, key=lambda r: (r.problem, r.sample)):
        seen = numbers.setdefault(row.key, [])
        if row.problem not in seen:
            seen.append(row.problem)
        found.setdefault((row.key, seen.index(row.problem)), []).append(row)
    return found


def _value(row: Sample, part: str) -> float:
    return (row.reward if part == "reward" else row.parts.get(part)) or 0.0


def _share(rows: Sequence[Sample], part: str) -> float:
    return sum(_value(row, part) for row in rows) / len(rows)


def _telling(rows: Sequence[Sample], won: bool, part: str) -> Sample:
    """The sample to show: one that has the part on the side that won, one that lacks it on the other."""
    return max(rows, key=lambda row: _value(row, part) if won else -_value(row, part))
