"""The live view of training in a terminal: progress, the numbers that matter with their trend, a rollout."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from trlmath.errors import visible
from trlmath.reports.bars import Times
from trlmath.runs.metrics_table import PHASES
from trlmath.types import Group as Rollouts

# label -> metric, in the order shown; those a run does not log are left out
SHOWN = {
    "reward": "train/reward",
    "format": "train/format",
    "answer": "train/answer",
    "loss": "train/loss",
    "entropy": "train/entropy",
    "length": "train/completions/mean_length",
    "cut off": "train/completions/clipped_ratio",
    "no spread": "train/frac_reward_zero_std",
    "accuracy": "train/mean_token_accuracy",
    "grad norm": "train/grad_norm",
}
ONLY_WITHOUT = {"loss": "train/reward", "grad norm": "train/frac_reward_zero_std"}
BLOCKS = "▁▂▃▄▅▆▇█"
TREND = 7  # characters of a trend
HISTORY = 200  # steps it is drawn from
CELL = 26  # columns of one number with its trend
EXCERPT = 300  # characters of a completion that are shown


def trend(values: Sequence[float], width: int = TREND) -> str:
    """A line of blocks, each the mean of a stretch of `values`, lowest to highest."""
    told = [v for v in values if math.isfinite(v)]
    if len(told) < 2:
        return ""
    width = min(width, len(told))
    edges = [round(i * len(told) / width) for i in range(width + 1)]
    means = [sum(told[a:b]) / (b - a) for a, b in zip(edges, edges[1:], strict=False)]
    low, high = min(means), max(means)
    if high == low:
        return BLOCKS[0] * width
    return "".join(BLOCKS[min(7, int(8 * (mean - low) / (high - low)))] for mean in means)


class TrainingView:
    """What is shown of a training run; `metrics` feeds it, `render` draws it."""

    def __init__(self, ascii_only: bool = False) -> None:
        self.ascii_only = ascii_only
        self._history: dict[str, deque[float]] = {}
        self._last: Mapping[str, float] = {}

    def metrics(self, numbers: Mapping[str, float]) -> None:
        """Take in the numbers of a step."""
        self._last = numbers
        for name in SHOWN.values():
            value = numbers.get(name)
            if isinstance(value, (int, float)):
                self._history.setdefault(name, deque(maxlen=HISTORY)).append(value)

    def render(self, width: int) -> RenderableType:
        """Numbers in as many columns as fit, then time, speed and memory."""
        cells = [self._cell(label, name) for label, name in SHOWN.items() if self._is_shown(label, name)]
        across = max(1, min(len(cells), (width - 2) // CELL))
        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(across):
            table.add_column(width=CELL - 2, no_wrap=True)
        for start in range(0, len(cells), across):
            table.add_row(*cells[start : start + across])
        return Group(table, Text(self._costs(), style="dim", no_wrap=True, overflow="ellipsis"))

    def line(self) -> dict[str, float | str]:
        """The numbers as plain text tells them."""
        return {
            label: self._last[name]
            for label, name in SHOWN.items()
            if self._is_shown(label, name) and isinstance(self._last.get(name), (int, float))
        }

    def _is_shown(self, label: str, name: str) -> bool:
        return name in self._history and ONLY_WITHOUT.get(label) not in self._history

    def _cell(self, label: str, name: str) -> Text:
        history = self._history[name]
        text = Text(f"{label:<9} ", style="dim")
        text.append(f"{short(history[-1]):>6} ", style="bold not dim")
        if not self.ascii_only:
            text.append(trend(history), style="cyan not dim")
        return text

    def _costs(self) -> str:
        last, told = self._last, []
        if last.get("train/tokens") and last.get("time/step"):
            told.append(f"{last['train/tokens'] / last['time/step']:,.0f} tok/s")
        if "memory/host" in last:
            told.append(f"memory {last['memory/host']:.1f} GiB")
        if "memory/gpu_peak" in last:
            told.append(f"GPU {last['memory/gpu_peak']:.1f} GiB")
        if "time/step" in last:
            spent = {phase: last.get(f"time/{phase}", 0.0) for phase in PHASES}
            phases = ", ".join(f"{phase} {s:.1f}" for phase, s in spent.items() if s >= 0.05)
            told.append(f"step {last['time/step']:.1f} s" + (f" ({phases})" if phases else ""))
        return "   ".join(told)


@contextmanager
def live_training(console: Console, what: str, total: int) -> Iterator[tuple[Progress, TrainingView]]:
    """Show the view until the block ends; yields the bar, to be advanced, and the view, to be fed."""
    bar = 30 if console.width >= 100 else 14
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=bar), MofNCompleteColumn(), Times())
    progress = Progress(*columns, console=console)
    progress.add_task(what, total=total)
    view = TrainingView(ascii_only=not (console.encoding or "").lower().startswith("utf"))

    class Whole:
        def __rich__(self) -> RenderableType:
            return Group(progress, view.render(console.width))

    with Live(Whole(), console=console, refresh_per_second=4):
        yield progress, view


def sampled_rollout(groups: Sequence[Rollouts], step: int, width: int) -> list[str]:
    """One rollout of a step with its grade, as lines; which one changes from step to step."""
    if not groups:
        return []
    group = groups[step % len(groups)]
    rollout = group.rollouts[step % len(group.rollouts)]
    grade = rollout.grade
    question = _one_line(group.problem.question if group.problem else group.prompt)
    gold = f"  (gold {_one_line(group.problem.answer or '')})" if group.problem else ""
    completion = _one_line(rollout.text)
    if len(completion) > EXCERPT:
        completion = f"{completion[: EXCERPT // 3]} … {completion[-EXCERPT * 2 // 3 :]}"
    reward = "none" if grade is None or grade.reward is None else f"{grade.reward:g}"
    # a reward that returns plain numbers has neither category nor reason
    why = ": ".join(_one_line(text) for text in (grade.category, grade.reason) if text) if grade else ""
    told = f"  reward {reward}{', ' if why else ''}{why}" if grade else ""
    head = f"rollout  step {step}: {question}"
    return [_cut(head, width - len(gold)) + gold, f"  {completion or '(empty)'}", _cut(told, 2 * width)]


def short(value: float) -> str:
    """A number in at most six characters, most of the time."""
    size = abs(value)
    if not math.isfinite(value):
        return str(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.3f}" if size >= 0.001 or size == 0 else f"{value:.0e}"


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 1)] + "…"
