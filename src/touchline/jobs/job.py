"""Work that happens in a place, prints lines, may be stopped or die, and has an outcome.

A `Job` is a call. A `Place` starts it, in this process (`Here`), in others (`processes`) or on a
cluster's nodes (`ray`). Work that dies starts again as often as its limits allow: from its folder
where it has one, else from the beginning. `follow` starts many, and ends those that still run.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from touchline.errors import NonFiniteError, RunError, TouchlineError, UsageError
from touchline.log import Log, silent

Result = TypeVar("Result")


@dataclass(frozen=True)
class RestartLimits:
    """How often a job may be restarted, each counted by itself; -1 lifts a limit.

    Defaults are ML-Agents'.
    """

    lifetime: int = 10
    rate: int = 1
    """At most this many within `period_s`."""
    period_s: float = 60.0


DEATHS = RestartLimits(rate=-1)
"""Limits for jobs of our own code: their nodes and processes may die in quick succession, and the
settings of players' restarts say nothing about them."""


@dataclass
class Restarts:
    """The restarts of one job."""

    name: str
    """Name of the job in messages, such as `world 2`."""
    limits: RestartLimits | None = DEATHS
    """None: no failure is restarted."""
    number: int = 0
    recent: deque[float] = field(default_factory=deque)
    """Times of restarts, in seconds, as far as the rate limit still counts them."""

    def count(self, error: Exception) -> None:
        """Count one more; raise a RunError if the limits do not allow it."""
        limits = self.limits
        if limits is None:
            raise error
        now = time.monotonic()
        while self.recent and now - self.recent[0] > limits.period_s:
            self.recent.popleft()
        # A limit of -1 fails the first comparison, and so lifts the limit.
        if 0 <= limits.lifetime <= self.number:
            most = "there are"
            if limits is not DEATHS:
                most = "that max_lifetime_restarts allows"
            raise RunError(
                f"{self.name} failed again after {self.number} restarts, the most {most}: {error}"
            ) from error
        if 0 <= limits.rate <= len(self.recent):
            raise RunError(
                f"{self.name} failed more than {limits.rate} times within "
                f"{limits.period_s:g} s (restarts_rate_limit_n, restarts_rate_limit_period_s): "
                f"{error}"
            ) from error
        self.number += 1
        self.recent.append(now)

    def alive(
        self,
        attempt: Callable[[Exception | None], Result],
        is_death: Callable[[Exception], bool],
        error: Exception | None = None,
    ) -> Result:
        """What the first `attempt` that succeeds returns; each gets the error before it.

        With an `error` there was one before. An error that is no death would come again, and is
        raised.
        """
        while True:
            if error is not None:
                if not is_death(error):
                    raise error
                self.count(error)
            try:
                return attempt(error)
            except Exception as again:
                error = again


STOPS_WITHIN_S = 3.0
"""Time that work has to save after Ctrl-C, of five seconds for all. Then it is killed, and its last
resume point, which is at most 20 seconds old, stays."""
POLL_S = 0.05
# Kinds of failures for callers, the first that fits: not every error can be pickled.
_KINDS = (UsageError, NonFiniteError, RunError)


@dataclass(frozen=True)
class Job:
    """A call of `work`, which can be pickled with its arguments."""

    name: str
    """Name of the job in messages, such as `seed 3`."""
    work: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    folder: Path | None = None
    """Folder that holds the state of the work, which gets a `Site` as its last argument and has a
    process of its own where there are several. None for a function, which begins again after a
    death."""
    starts_over: bool = False
    """Whether `folder` holds an earlier state, which is replaced."""


@dataclass(frozen=True)
class Site:
    """What work with a folder finds where it runs."""

    folder: Path
    log: Log
    """Takes lines, which arrive at whoever started the job."""
    is_home: bool = True
    """Whether `folder` is the job's own; else it is a copy that is brought home."""
    program: Path | None = None
    """Executable of the build that was shipped."""


@dataclass(frozen=True)
class Outcome:
    """Result of a job, or why there is none."""

    value: Any = None
    failure: str = ""
    kind: type[TouchlineError] = RunError
    died: bool = False
    """Whether the place or the process failed, so that another attempt may succeed."""
    cause: Exception | None = None
    """What the place reported of a death, where that is an error."""

    @property
    def why(self) -> str:
        """The failure in one line; empty where there is none."""
        return " ".join(self.failure.split())

    def result(self) -> Any:
        """The value. Raises the failure where there is one."""
        if self.failure:
            raise self.kind(self.failure)
        return self.value


def call(work: Callable[..., Any], *arguments: Any) -> Outcome:
    """The outcome of a function that is called now."""
    try:
        return Outcome(work(*arguments))
    except TouchlineError as error:
        fitting = (kind for kind in _KINDS if isinstance(error, kind))
        return Outcome(failure=str(error), kind=next(fitting, RunError))


class Running(ABC):
    """A job that was started; each place has its own kind."""

    def __init__(self, name: str, restarts: Restarts) -> None:
        self.name = name
        self.outcome: Outcome | None = None
        self._restarts = restarts
        self._began = time.monotonic()
        self._lines: list[str] = []
        self._late_at: float | None = None
        """Time at which it is killed, once it was stopped."""

    @property
    def took_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def is_stopping(self) -> bool:
        return self._late_at is not None

    def look(self, patience_s: float = 0.0) -> Outcome | None:
        """Its outcome; None where it still runs after that many seconds."""
        if self.outcome is not None:
            return self.outcome
        found = self._ended(patience_s)
        if found is not None and found.died and not self.is_stopping:
            found = self._started_again(found)
        if found is None and self._late_at and time.monotonic() > self._late_at:
            self.kill()
        self.outcome = found
        return found

    def _started_again(self, death: Outcome) -> Outcome | None:
        """None once it runs again; its outcome where the limits do not allow that."""
        if self._restarts.limits is None:
            return death
        refused = call(self._restarts.count, RunError(death.failure))
        if refused.failure:
            return refused
        self._restart(death)
        return None

    def lines(self) -> list[str]:
        """Lines that it has printed since the last call."""
        lines = self._lines[:]
        # A thread may have added some meanwhile.
        del self._lines[: len(lines)]
        return lines

    def stop(self) -> None:
        """Let it save and end; where that takes too long, it is killed."""
        self._late_at = time.monotonic() + STOPS_WITHIN_S
        self._stop()

    # what places define

    @abstractmethod
    def _ended(self, patience_s: float) -> Outcome | None:
        """How it ended, if it has within that many seconds; keeps the lines that it printed."""

    def _restart(self, death: Outcome) -> None:  # noqa: B027 - not all can die
        """Start it again after a death."""

    def _stop(self) -> None:
        """Let it save and end, where it has something to save."""
        self.kill()

    @abstractmethod
    def kill(self) -> None:
        """End it, and the processes that it started, at once."""


class Place(ABC):
    """Starts jobs."""

    at_once = 1
    """Number of jobs for which it has room."""

    @abstractmethod
    def start(self, job: Job) -> Running:
        """Start a job."""

    def close(self) -> None:  # noqa: B027 - few have any
        """End what it keeps for further jobs."""


def follow(place: Place, jobs: Iterable[Job], log: Log = silent) -> Generator[Running]:
    """What runs, again and again, until all have ended; each comes once more at its end.

    A job is taken from `jobs` as soon as there is room for it. When this is closed, or interrupted,
    all that still run save and end; `log` gets lines about those that had to be killed.
    """
    waiting = iter(jobs)
    are_left = True
    running: list[Running] = []
    try:
        while are_left or running:
            while are_left and len(running) < place.at_once:
                job = next(waiting, None)
                are_left = job is not None
                if job is not None:
                    running.append(place.start(job))
            looked_at = running
            running = [one for one in looked_at if one.look() is None]
            yield from looked_at
            # Where one has ended, the next begins at once.
            if len(running) == len(looked_at):
                time.sleep(POLL_S)
    finally:
        try:
            for one in running:
                one.stop()
            deadline = time.monotonic() + STOPS_WITHIN_S
            while running and time.monotonic() < deadline:
                time.sleep(POLL_S)
                running = [one for one in running if one.look() is None]
            for one in running:
                log(f"{one.name} was slow to stop and loses its last seconds")
        finally:  # also at a second Ctrl-C
            for one in running:
                one.kill()
            place.close()


class Here(Place):
    """Whoever looks at a job does it."""

    def start(self, job: Job) -> InThisProcess:
        return InThisProcess(job)


class InThisProcess(Running):
    """A job of this process, which does not survive its death."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.name, Restarts(job.name, limits=None))
        self._job = job

    def _ended(self, patience_s: float) -> Outcome:
        arguments = self._job.arguments
        if self._job.folder is not None:
            arguments += (Site(self._job.folder, self._lines.append),)
        return call(self._job.work, *arguments)

    def kill(self) -> None:
        # Whoever looks at it now does not begin it.
        self.outcome = Outcome(failure="it was stopped")
