"""A training run on a terminal: a live table of its behaviors, below the lines that it logs."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from touchline.cli.output import visible
from touchline.log import EvaluationLine, ProgressLine

if TYPE_CHECKING:
    from touchline.training.run.progress import BehaviorProgress

EVERY_S = 0.25
"""Between looks at the run; the table is drawn as often."""
SPEED_OVER_S = 20.0
"""Speed is measured over the latest seconds, this many of them."""


@contextmanager
def training_table() -> Iterator[TrainingTable | None]:
    """The table while the block runs; None where standard error is no terminal that can show it.

    The cursor is back and the last table stays when the block ends, however it ends.
    """
    console = _terminal()
    if console is None:
        yield None
        return
    from rich.live import Live

    table = TrainingTable(console)
    # Standard output stays what it is: results only.
    live = Live(
        console=console,
        get_renderable=table.draw,
        refresh_per_second=1 / EVERY_S,
        redirect_stdout=False,
    )
    try:
        with live:
            try:
                yield table
            finally:
                # A run that failed before its first step leaves no empty table.
                live.transient = not table.has_rows
    finally:
        console.show_cursor()


def _terminal() -> Any:
    """The console of a terminal that can move its cursor; otherwise None."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return None if console.is_dumb_terminal else console


class TrainingTable:
    """What is known of a run. The run's thread fills it, the display's draws it."""

    def __init__(self, console: Any) -> None:
        self._console = console
        self._started = self._last_look = time.monotonic()
        self._rows: Sequence[BehaviorProgress] = ()
        self._past: dict[str, deque[tuple[float, int]]] = {}
        """Behavior -> (time, step) of the latest seconds."""
        self._progress: Callable[[], Sequence[BehaviorProgress]] | None = None
        self._evaluated: dict[str, str] = {}
        """Behavior -> its latest evaluation as a line."""

    @property
    def has_rows(self) -> bool:
        return bool(self._rows)

    def log(self, line: str) -> None:
        """A line above the table; the table itself stands for lines of progress."""
        if isinstance(line, ProgressLine):
            # The last one comes with the last step, before the run is evaluated.
            self.look()
        elif isinstance(line, EvaluationLine):
            self._evaluated[line.behavior] = line
        else:
            self._console.print(
                visible(line), markup=False, highlight=False, soft_wrap=True
            )

    def watch(self, progress: Callable[[], Sequence[BehaviorProgress]]) -> None:
        """Look at the run's progress, if the last look was long enough ago."""
        self._progress = progress
        if not self._rows or time.monotonic() - self._last_look >= EVERY_S:
            self.look()

    def look(self) -> None:
        """Look at the run's progress now, in the run's thread."""
        if self._progress is None:
            return
        now = self._last_look = time.monotonic()
        rows = []
        for row in self._progress():
            past = self._past.setdefault(row.name, deque())
            # Steps that were handed over to a learner count again once it has used them.
            step = max(row.step, past[-1][1] if past else 0)
            past.append((now, step))
            while now - past[0][0] > SPEED_OVER_S:
                past.popleft()
            rows.append(replace(row, step=step))
        self._rows = rows

    def draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        if not self._rows:
            return Text(f"train: starting, {time.monotonic() - self._started:.0f} s")
        has_ratings = any(row.rating is not None for row in self._rows)
        table = Table(box=None, pad_edge=False)
        table.add_column("behavior")
        for title in ("step", "done", "steps/s", "return"):
            table.add_column(title, justify="right")
        if has_ratings:
            table.add_column("ELO", justify="right")
        table.add_column("left", justify="right")
        for row in self._rows:
            cells = self._cells(row, has_ratings=has_ratings)
            table.add_row(*(Text(visible(cell)) for cell in cells))
        evaluated = (Text(visible(line)) for line in self._evaluated.values())
        return Group(table, *evaluated)

    def _cells(self, row: BehaviorProgress, *, has_ratings: bool) -> list[str]:
        speed = self._speed(row.name)
        left_s = max(0, row.max_steps - row.step) / speed if speed else None
        rating = "–" if row.rating is None else f"{row.rating:.0f}"
        # A behavior of 0 steps only imitates, which is over before the first one.
        done = min(1.0, row.step / row.max_steps) if row.max_steps else 1.0
        return [
            row.name,
            f"{row.step:,}",
            f"{100 * done:.0f} %",
            f"{speed:,.0f}" if speed else "–",
            _return(row),
            *([rating] if has_ratings else []),
            "–" if left_s is None else f"{left_s // 60:.0f}:{left_s % 60:02.0f}",
        ]

    def _speed(self, name: str) -> float:
        """Agent steps per second lately; 0 while unknown."""
        # A copy: the run's thread appends meanwhile.
        past = list(self._past[name])
        (first_s, first), (last_s, last) = past[0], past[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


def _return(row: BehaviorProgress) -> str:
    if row.mean_return is None:
        return "–"
    spread = f"{row.mean_return:.3f} ± {row.std_return:.3f}"
    return f"{spread} so far" if row.is_so_far else spread
