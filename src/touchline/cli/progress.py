"""Progress on standard error: what a command is doing, and how far it is.

A terminal shows a bar; a pipe or a log file gets a line now and then. A command that is done
within a second shows neither.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from touchline.cli.output import log
from touchline.log import WAITING, Log, Progress

if TYPE_CHECKING:
    from touchline.envs.env import EnvRecipe

FIRST_AFTER_S = 0.8
"""Commands that take less stay silent."""
MOST_BETWEEN_S = 30.0
"""The pauses between lines double up to this."""


@contextmanager
def shown(
    task: str, unit: str = "", recipe: EnvRecipe | None = None
) -> Iterator[Progress]:
    """Show progress while the block runs; it passes what is done and the total, in `unit`.

    Before the first call the task is shown as starting. If the world of this `recipe` is the
    Editor, a line says at once what to do there.
    """
    if recipe is not None and recipe.is_editor:
        log(WAITING)
    display = _Display(task, unit)
    # A daemon: an error in the main thread ends the program without waiting for a line.
    watcher = threading.Thread(target=display.run, daemon=True)
    watcher.start()
    try:
        yield display.update
    finally:
        display.ended.set()
        # Joined, so that nothing is drawn over the result that follows.
        watcher.join()


@contextmanager
def until_first_line(task: str, log: Log) -> Iterator[Log]:
    """A log for a task that reports in lines; until the first one the task is shown as starting."""
    with ExitStack() as starting:
        starting.enter_context(shown(task))

        def log_and_end(line: str) -> None:
            starting.close()
            log(line)

        yield log_and_end


class _Display:
    """What is known of a task, and the thread that shows it."""

    # A thread, because loading libraries and compiling report nothing on the way.

    def __init__(self, task: str, unit: str) -> None:
        self.ended = threading.Event()
        self._task, self._unit = task, unit
        self._done, self._total = 0, 0
        self._started = time.monotonic()

    def update(self, done: int, total: int) -> None:
        self._done, self._total = done, total

    def run(self) -> None:
        if self.ended.wait(FIRST_AFTER_S):
            return
        if sys.stderr.isatty():
            self._run_bar()
        else:
            self._run_lines()

    def _run_lines(self) -> None:
        pause = FIRST_AFTER_S
        while True:
            log(f"{self._task}: {self._state()}")
            if self.ended.wait(pause):
                return
            # Doubled, so that a long run does not fill a log file.
            pause = min(2 * pause, MOST_BETWEEN_S)

    def _state(self) -> str:
        seconds = f"{time.monotonic() - self._started:.0f} s"
        if not self._total:
            return f"starting, {seconds}"
        return f"{self._done:,} of {self._total:,} {self._unit}, {seconds}"

    def _run_bar(self) -> None:
        with _new_bar() as bar:
            row = bar.add_task(self._task, total=None, state="starting")
            while not self.ended.wait(0.1):
                if self._total:
                    state = f"{self._done:,} of {self._total:,} {self._unit}"
                    bar.update(
                        row, completed=self._done, total=self._total, state=state
                    )


def _new_bar() -> Any:
    # Imported by the thread and only for a terminal: a fifth of a second on a slow disk.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
    )
    # It vanishes at the end, since results follow; those stay on standard output.
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
    )
