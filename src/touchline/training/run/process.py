"""Settings of the whole process while a run trains: signals, torch's threads, the memory allocator.

Each is a context that puts back what it found, so that a program may train several times.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from touchline.interrupts import end_at_once, handled, raise_once, sigterm_as_ctrl_c
from touchline.operating_systems import KEYBOARD_SIGNALS, STOP_SIGNALS, glibc_mallopt
from touchline.training.config.settings import RunConfig
from touchline.training.run.device import matrices_for

# Parameters of glibc's `mallopt`, from its malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# What both thresholds are when a program starts (mallopt(3)), bytes.
_GLIBC_DEFAULT = 128 * 1024


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set an event, so no step is cut in two; a second one ends at once."""
    stop = threading.Event()
    asked = False

    def request_stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:  # the event may not be set yet, and its lock is held
            end_at_once(number, frame)
        asked = True
        stop.set()

    with handled(request_stop, *STOP_SIGNALS):
        yield stop


@contextmanager
def interruptible() -> Iterator[None]:
    """Within `stop_on_signals`: the first signal already raises, where there is nothing to save."""
    with handled(raise_once, *KEYBOARD_SIGNALS), sigterm_as_ctrl_c():
        yield


@contextmanager
def tuned_process(config: RunConfig) -> Iterator[None]:
    """One torch thread, fast matrices, freed memory is kept, and threads take turns often."""
    with one_torch_thread(), matrices_for(config), kept_memory(), short_turns():
        yield


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Networks of this size get slower with more threads (`docs/benchmarks.md`)."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def short_turns() -> Iterator[None]:
    """Threads of Python change every 0.1 ms at least, instead of 5 ms."""
    # A world's thread waits for its turn after each answer of a player, while another one learns
    # (`threaded: true`): 5 ms are several decisions.
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Large freed blocks stay with the process for the next update."""
    # glibc returns them to the system, and getting them again took up to a third of the time of
    # learning (`docs/lab_log.md`).
    mallopt = glibc_mallopt()
    if mallopt is None:
        yield
        return
    # The largest int: the top of the heap is never returned.
    mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    # Blocks below 64 MiB come from the heap, which keeps them, and not from mmap, which never
    # does. Larger ones, of which each update needs a few, would leave holes between them in which
    # the next ones, a little larger, find no place: hundreds of megabytes in every hour.
    mallopt(_MMAP_THRESHOLD, 2**26)
    try:
        yield
    finally:
        mallopt(_TRIM_THRESHOLD, _GLIBC_DEFAULT)
        mallopt(_MMAP_THRESHOLD, _GLIBC_DEFAULT)
