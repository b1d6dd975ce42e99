"""Where lines for people go, and how far a long task is: functions that callers pass."""

import time
from collections.abc import Callable
from typing import Self

Log = Callable[[str], None]
Progress = Callable[[int, int], None]
"""Called often with how much is done, and of how much."""


WAITING = "waiting for the Editor on port 5004: press Play"
"""The line before the Unity Editor connects."""


class ProgressLine(str):
    """A line about how far something is; a live display leaves it out."""


class EvaluationLine(str):
    """The latest evaluation of a behavior; a live display shows it below its table."""

    def __new__(cls, behavior: str, text: str) -> Self:
        line = super().__new__(cls, f"{behavior}  {text}")
        line.behavior = behavior
        return line

    behavior: str


def silent(line: str) -> None:
    """The log of callers who want no lines."""
    del line


def now_and_then(log: Log, task: str, unit: str, pause_s: float = 10.0) -> Progress:
    """Progress as lines of a log, with this many seconds between them and before the first."""
    latest = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal latest
        now = time.monotonic()
        if now - latest >= pause_s:
            latest = now
            log(f"{task}: {done:,} of {total:,} {unit}")

    return report


def no_progress(done: int, total: int) -> None:
    """The progress of callers who want none."""
    del done, total
