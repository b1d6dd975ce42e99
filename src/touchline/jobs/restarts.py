"""How often work that failed may start again: ML-Agents' limits, counted for one job."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from touchline.errors import RunError

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
