"""Waits for players in several threads, which one thread can end all at once.

Ctrl-C reaches only the main thread, so the others look every moment whether to wait on.
"""

from contextvars import ContextVar
from threading import Event

from touchline.protocol.errors import UnityEnvironmentException

# Each thread has a value of its own.
_GIVEN_UP: ContextVar[Event | None] = ContextVar("given_up", default=None)


def wait_only_until(given_up: Event) -> None:
    """From now on, this thread waits for players only until the event is set."""
    _GIVEN_UP.set(given_up)


def check_not_given_up(name: str) -> None:
    """Raise if nobody wants the player of this name any more."""
    given_up = _GIVEN_UP.get()
    if given_up is not None and given_up.is_set():
        raise UnityEnvironmentException(f"{name} is not waited for any more")
