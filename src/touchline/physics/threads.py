"""Threads that run kernels over areas, and how they wait for each other.

A scene hands out work many times in a decision, mostly some hundred microseconds of it. Waking a
thread that sleeps takes 50 to 100 µs, on each side, which used to be most of what a second thread
cost. So a thread that runs out of work looks for more for a while before it sleeps, in compiled
code and without the interpreter lock; only then does it wait for an event.

On a busy machine a thread may lose its processor in the middle of its part, for longer than all of
the work takes. Work is therefore done by the calling thread alone while that is faster.
"""

import math
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from touchline.operating_systems import num_cores
from touchline.physics.kernels import compiled

_MIN_SHARE = 64
"""Fewer items than this are not worth a second thread (chosen by trial)."""
_LOOKS = 200_000
"""How often a thread looks for work before it sleeps: some 100 µs."""
_HEAD_START = 10_000
"""Looks after work was found: the caller still needs the interpreter lock for some 10 µs, and a
thread that finds it taken is put to sleep."""
_NAP_S = 5e-5
"""Between looks at a helper that takes long."""
_TRIAL_S = 0.05
"""How long work and waiting are measured before it is decided whether other threads help."""
_ALONE_S = 2.0
"""How long the calling thread then works alone, if they do not."""
GIVEN, DONE = 0, 1
"""What `_Helper.jobs` counts."""

Kernel = Callable[..., object]
_NUMBER = ir.IntType(64)


@intrinsic  # type: ignore[untyped-decorator]
def _read(_context: Any, address: Any) -> Any:
    """The integer at an address, read from memory each time; `jobs[k]` may stay in a register."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[0], _NUMBER.as_pointer())
        return builder.load_atomic(pointer, "acquire", 8, typ=_NUMBER)

    return types.int64(address), generate


@intrinsic  # type: ignore[untyped-decorator]
def _write(_context: Any, address: Any, _value: Any) -> Any:
    """Set the integer at an address after everything else that was written before."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[0], _NUMBER.as_pointer())
        builder.store_atomic(values[1], pointer, "release", 8)
        return values[1]

    return types.int64(address, types.int64), generate


@compiled
def _look(address: int, wanted: int, looks: int) -> bool:
    """Whether the integer at an address becomes `wanted` before so many looks."""
    left = looks
    while left > 0 and _read(address) != wanted:
        left -= 1
    return left > 0


@compiled
def _finish(done: int, given: int, job: int, looks: int, head_start: int) -> bool:
    """Report a job as done, then look for the next one; whether it came."""
    # Reported from here, where the interpreter lock is free: the caller needs it next.
    _write(done, job)
    if not _look(given, job + 1, looks):
        return False
    # Nothing is as negative as that: this only passes time.
    _look(given, -1, head_start)
    return True


class _Helper:
    """A thread with a part of each job."""

    def __init__(self, name: str) -> None:
        self.jobs = np.zeros(2, np.int64)
        """How many jobs were given, how many are done."""
        self.part: tuple[Kernel, tuple[Any, ...]] | None = None
        """The next job; None ends the thread."""
        self.error: BaseException | None = None
        self._awake = threading.Event()
        self._awake.set()
        self._given, self._done = (self.jobs[k:].ctypes.data for k in (GIVEN, DONE))
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def give(self, kernel: Kernel | None, *arguments: Any) -> None:
        """Let the thread call kernel(*arguments); without a kernel it ends."""
        # Ctrl-C may have ended the wait for the last one. An end waits for nothing: in a forked
        # child no thread is there to finish.
        if kernel is not None and self.jobs[DONE] != self.jobs[GIVEN]:
            self.wait()
        self.part = None if kernel is None else (kernel, arguments)
        self.jobs[GIVEN] += 1
        if not self._awake.is_set():
            self._awake.set()

    def wait(self) -> BaseException | None:
        """Wait for the job that was given; returns what it raised."""
        wanted = self.jobs[GIVEN]
        while not _look(self._done, wanted, _LOOKS):
            # Ctrl-C may have come between a job and its event.
            self._awake.set()
            time.sleep(_NAP_S)
        error, self.error = self.error, None
        return error

    def _serve(self) -> None:
        job = 0
        while True:
            if not _finish(self._done, self._given, job, _LOOKS, _HEAD_START):
                self._sleep(job)
            if self.part is None:
                return
            kernel, arguments = self.part
            try:
                kernel(*arguments)
            except BaseException as error:
                # The caller raises it.
                self.error = error
            job += 1

    def _sleep(self, job: int) -> None:
        # In this order: a job that is given before the event is cleared is seen by the look after
        # it, and one given later sets the event again. The event alone says nothing: a job that was
        # seen before its event was set sets it when that job is long done.
        self._awake.clear()
        while self.jobs[GIVEN] == job:
            self._awake.wait()
            self._awake.clear()


class Threads:
    """Runs kernels over a range of areas or agents, in as many parts as there are threads.

    The calling thread runs the first part itself. The others always go to the same threads, whose
    processors then have the areas' arrays in their caches.
    """

    def __init__(self, num_threads: int = 0, min_share: int = _MIN_SHARE) -> None:
        """0 threads: one for each core. `min_share`: fewest items for a thread."""
        self.num_threads = num_threads or num_cores()
        self._min_share = min_share
        self._helpers: list[_Helper] = []
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._worked_s = self._waited_s = 0.0
        """Times of the calling thread since the trial began: in its own parts, and waiting for
        others."""
        self._alone_until_s = -math.inf

    def parts(self, count: int) -> int:
        """The number of parts in which it pays to run this many areas or agents."""
        return max(1, min(self.num_threads, count // self._min_share))

    def run(self, kernel: Kernel, count: int, *arguments: Any) -> None:
        """Call kernel(first, last, *arguments) over [0, count), split evenly."""
        parts = self.parts(count)
        if parts == 1 or time.perf_counter() < self._alone_until_s:
            kernel(0, count, *arguments)
            return
        while len(self._helpers) < parts - 1:
            self._add_helper()
        helpers = self._helpers[: parts - 1]
        try:
            for part, helper in enumerate(helpers, 1):
                first, last = count * part // parts, count * (part + 1) // parts
                helper.give(kernel, first, last, *arguments)
            began = time.perf_counter()
            kernel(0, count // parts, *arguments)
        finally:
            worked = time.perf_counter()
            # Also after an error: nothing may run on behind the caller's back.
            errors = [helper.wait() for helper in helpers]
        for error in errors:
            if error is not None:
                raise error
        self._judge(parts, worked - began, time.perf_counter() - worked)

    def _judge(self, parts: int, worked_s: float, waited_s: float) -> None:
        """Continue alone for a while if the others' parts would take less time than waiting."""
        self._worked_s += worked_s
        self._waited_s += waited_s
        if self._worked_s + self._waited_s < _TRIAL_S:
            return
        if self._waited_s > (parts - 1) * self._worked_s:
            self._alone_until_s = time.perf_counter() + _ALONE_S
        self._worked_s = self._waited_s = 0.0

    def close(self) -> None:
        """End the threads. Idempotent."""
        if self._finalizer is not None:
            self._finalizer()
        self._helpers = []

    def _add_helper(self) -> None:
        if not self._helpers:
            # Ends them without a call of `close`, too, at the latest with the interpreter.
            self._finalizer = weakref.finalize(self, _end, self._helpers)
        name = f"touchline-scene_{len(self._helpers)}"
        self._helpers.append(_Helper(name))


def _end(helpers: list[_Helper]) -> None:
    while helpers:
        helpers.pop().give(None)
