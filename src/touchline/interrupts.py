"""What Ctrl-C does: the first one asks, the second one ends the process at once.

A second KeyboardInterrupt, raised in compiled code that calls back into Python, is a fatal error.
So the second one raises nothing: files are whole, and only other processes have to be ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""

sessions: set[int] = set()
"""Processes that lead a session of their own, so that Ctrl-C does not reach them: players."""


def raise_once(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's arguments
    """Handler of SIGINT: KeyboardInterrupt, and with the next one the end."""
    signal.signal(signal.SIGINT, end_at_once)
    raise KeyboardInterrupt


def end_at_once(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as above
    """Handler of a signal: end all players and this process, and say so in a line."""
    for pid in sessions:
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                os.kill(pid, signal.SIGTERM)
            else:
                os.killpg(pid, signal.SIGKILL)
    # Not through `sys.stderr`, which may be in the middle of a line.
    line = (
        "ended at once; what a run saved before is whole, and --resume continues it\n"
    )
    with contextlib.suppress(OSError):
        os.write(2, line.encode())
    os._exit(INTERRUPTED)
