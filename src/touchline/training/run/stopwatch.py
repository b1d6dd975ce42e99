"""The parts of a run's wall-clock time."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Stopwatch:
    """Seconds by part of the work. Parts do not overlap; the rest of the time is `other`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._started = time.perf_counter()
        self._before = 0.0

    def restore(self, seconds: Mapping[str, float]) -> None:
        """Continue from what an earlier stopwatch counted."""
        self._seconds = dict(seconds)
        self._before = sum(self._seconds.values())

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        """Count what happens in the block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.add(part, time.perf_counter() - started)

    def add(self, part: str, seconds: float) -> None:
        """Count what was timed elsewhere."""
        self._seconds[part] = self._seconds.get(part, 0.0) + seconds

    def seconds(self) -> dict[str, float]:
        """Seconds of every part, `other` included; their sum is the time of all."""
        whole = self._before + time.perf_counter() - self._started
        # What the named parts leave, also where an earlier stopwatch brought an `other`.
        known = {part: s for part, s in self._seconds.items() if part != "other"}
        return known | {"other": whole - sum(known.values())}
