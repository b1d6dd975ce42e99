"""What Ctrl-C does: the first one asks, the second one ends the process at once.

So do SIGTERM, and SIGHUP, which a terminal sends that is closed.

A second KeyboardInterrupt, raised in compiled code that calls back into Python, is a fatal error.
So the second one raises nothing: files are whole, and only other processes have to be ended.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

from touchline.operating_systems import (
    HANG_UP,
    STOP_SIGNALS,
    end_all_trees,
    leave_closed_terminal,
    send_to_self,
)

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 and the number of SIGINT, as shells have it."""

STOPPED_EARLY = 256 + INTERRUPTED
"""A command that has said what Ctrl-C left saved ends with this, which becomes the exit code 130. A
Ctrl-C that no command handles is 130 to the parser.
"""

AGAIN_AFTER_S = 0.01
"""A callback of Python's own has ended by then."""

_resumes = threading.Event()
"""Whether --resume continues what this process does."""

Handler = Callable[[int, FrameType | None], object]


def handle_stops(handler: Handler) -> None:
    """From now on Ctrl-C and other requests to end call this."""
    for number in STOP_SIGNALS:
        signal.signal(number, handler)


def raise_once(number: int, frame: FrameType | None) -> None:
    """Handler of a signal: KeyboardInterrupt, and with the next one the end."""
    running = [call for call, _ in traceback.walk_stack(frame)]
    if any(call.f_code is _raise_again.__code__ for call in running):
        _send_again()  # in there it would be ignored
        return
    if any(map(_loads, running)):
        end_at_once(number, frame)
    leave_closed_terminal()
    handle_stops(end_at_another)
    raise KeyboardInterrupt


def _loads(call: FrameType) -> bool:
    """Whether it loads a module: torch's code ends at an exception there, pydantic's hides it."""
    return call.f_code.co_filename == "<frozen importlib._bootstrap>"


def raise_on_ctrl_c(*, resumes: bool = False) -> None:
    """The program's first Ctrl-C, or another request to end, raises a KeyboardInterrupt, wherever
    it comes. `resumes`: what it does can be continued by --resume.
    """
    if resumes:
        _resumes.set()
    handle_stops(raise_once)
    sys.unraisablehook = _raise_again


def _raise_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Raise a KeyboardInterrupt again a moment later, where Python ignores it.

    It does so in destructors and in callbacks of weak references, as of each import.
    """
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        # This one had no effect, so the next one is the first again.
        handle_stops(raise_once)
        _send_again()
    else:
        sys.__unraisablehook__(ignored)


def _send_again() -> None:
    threading.Timer(AGAIN_AFTER_S, send_to_self, [signal.SIGINT]).start()


@contextlib.contextmanager
def handled(handler: Handler, *signals: signal.Signals) -> Iterator[None]:
    """These signals have this handler meanwhile, in the main thread, which alone may handle any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Requests to end wait until the block is over: one amid the start of a process, before its
    handle is kept, would leave it behind.
    """
    arrived: list[int] = []
    # Not those that are ignored, as after `nohup`: what is started would not ignore them.
    caught = [number for number in STOP_SIGNALS if callable(signal.getsignal(number))]
    try:
        with handled(lambda number, _: arrived.append(number), *caught):
            yield
    finally:
        if arrived:
            signal.raise_signal(arrived[0])


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, so that a world being opened leaves no player behind."""
    with handled(signal.default_int_handler, signal.SIGTERM):
        yield


def end_at_once(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as above
    """Handler of a signal: end all players and this process, and say so in a line."""
    end_all_trees()
    # Not through `sys.stderr`, which may be in the middle of a line.
    line = "ended at once"
    if _resumes.is_set():
        line += "; what a run saved before is whole, and --resume continues it"
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())
    # `sys.exit` would only raise an exception, and wait for threads.
    os._exit(INTERRUPTED)


def end_at_another(number: int, frame: FrameType | None) -> None:
    """Handler of signals after the first: the end, but for the hang-ups of a terminal."""
    if number in HANG_UP:
        # As it is closed, both its shell and the system send one.
        leave_closed_terminal()
    else:
        end_at_once(number, frame)
