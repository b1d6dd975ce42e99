"""How often what failed may be replaced: ML-Agents' limits, counted for one world or collector."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from touchline.errors import RunError


@dataclass(frozen=True)
class RestartLimits:
    """How often a world may be restarted, each counted by itself; -1 lifts a limit.

    Defaults are ML-Agents'.
    """

    lifetime: int = 10
    rate: int = 1
    """At most this many within `period_s`."""
    period_s: float = 60.0


class RestartLimitError(RunError):
    """A world or a collector failed more often than the limits allow."""


@dataclass
class Restarts:
    """The restarts of one world or collector."""

    name: str
    """How messages call it, such as `world 2`."""
    number: int = 0
    recent: deque[float] = field(default_factory=deque)
    """When it was restarted, in seconds, as far as the rate limit still counts it."""

    def count(self, limits: RestartLimits, error: Exception) -> None:
        """Count one more; raise a RestartLimitError if the limits do not allow it."""
        now = time.monotonic()
        while self.recent and now - self.recent[0] > limits.period_s:
            self.recent.popleft()
        # A limit of -1 fails the first comparison, and so lifts the limit.
        if 0 <= limits.lifetime <= self.number:
            raise RestartLimitError(
                f"{self.name} failed again after {self.number} restarts, the most "
                f"that max_lifetime_restarts allows: {error}"
            ) from error
        if 0 <= limits.rate <= len(self.recent):
            raise RestartLimitError(
                f"{self.name} failed more than {limits.rate} times within "
                f"{limits.period_s:g} s (restarts_rate_limit_n, restarts_rate_limit_period_s): "
                f"{error}"
            ) from error
        self.number += 1
        self.recent.append(now)
