"""Progress in words: times, numbers that fit a line, and plain lines where output is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from rich.progress import ProgressColumn, Task
from rich.text import Text


class Times(ProgressColumn):
    """Time since the start and the time that is probably left."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        """See `ProgressColumn`."""
        return Text(times_text(task.finished_time if task.finished else task.elapsed, task.time_remaining))


def times_text(elapsed: float | None, left: float | None) -> str:
    """``0:01:12 elapsed, 0:00:40 left``."""
    rest = "-:--:--" if left is None else str(timedelta(seconds=int(left)))
    return f"{timedelta(seconds=int(elapsed or 0))} elapsed, {rest} left"


def fitting(numbers: Mapping[str, float | str], room: int) -> str:
    """As many of `numbers` as `room` characters hold: speed and the first one before the others."""
    first = list(numbers)[:1]
    kept: dict[str, float | str] = {}
    for name in dict.fromkeys(["tok/s", *first, *numbers]):
        if name in numbers and len(numbers_text({**kept, name: numbers[name]})) <= room:
            kept[name] = numbers[name]
    return numbers_text({name: value for name, value in numbers.items() if name in kept})


def numbers_text(numbers: Mapping[str, float | str]) -> str:
    """``reward 0.41  tok/s 1,390``."""
    shown = []
    for name, value in numbers.items():
        text = value if isinstance(value, str) else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
        shown.append(f"{name} {text}")
    return "  ".join(shown)


class Lines:
    """Progress as plain lines, for logs and pipes: about twenty of them a bar."""

    def __init__(self, say: Callable[[str], None], what: str, total: int) -> None:
        self.say, self.what, self.total, self.done, self.said = say, what, total, 0, 0

    def advance(self, count: int = 1, **numbers: float | str) -> None:
        """Count on, and say so when it is time to."""
        self.done = min(self.done + count, self.total)
        if self.done == self.total or self.done - self.said >= max(self.total / 20, 1):
            self.said = self.done
            self.say(f"{self.what}  {self.done}/{self.total}  {numbers_text(numbers)}".rstrip())
