"""A world at play in a thread of its own: it plays, pauses, and obeys orders of pages.

A later order of the same name replaces one that still waits, so a page that floods the thread with
orders delays nothing. What is shown of the world is each subclass's own: `simulation` has states
and shapes, `plain_simulation` has exchanges alone.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from touchline.envs.slots import SlotRows, Slots

Returns = Mapping[str, NDArray[np.float64]]
"""[N] the rewards of each slot's open episode so far, by full behavior name."""


class Playing(ABC):
    """The thread that steps a world's slots."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.failure: BaseException | None = None
        """What ended the thread or a page, if not `close`."""
        self.is_paused = False
        self._wants_step = False
        self._is_closing = False
        self._orders: dict[str, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="simulation", daemon=True
        )

    # what pages call

    def start(self) -> None:
        """Begin to play."""
        self._thread.start()

    def order(self, name: str, do: Callable[[], None]) -> None:
        """Have the thread do this between two exchanges, as soon as it can."""
        with self._lock:
            self._orders[name] = do
        self._wake.set()

    def fail(self, failure: BaseException) -> None:
        """End the thread; `join` raises this."""
        self.failure = failure
        self._is_closing = True
        self._wake.set()

    def close(self) -> None:
        """End the thread and close the world. Idempotent."""
        self._is_closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.slots.close()

    def join(self) -> None:
        """Wait until the thread ends, and raise what ended it."""
        while self._thread.is_alive():
            self._thread.join(0.2)  # so that Ctrl-C is noticed
        if self.failure is not None:
            raise self.failure

    # orders: these run in the thread

    @abstractmethod
    def pause(self) -> None:
        """Stop after the running exchange."""

    @abstractmethod
    def resume(self) -> None:
        """Go on."""

    @abstractmethod
    def restart(self) -> None:
        """Begin new episodes."""

    def step_once(self) -> None:
        """Play one exchange and stop."""
        self._wants_step = True

    # the thread

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._obey()
                if self.is_paused and not self._wants_step:
                    # An order that came since sets the event again.
                    self._wake.wait(1.0)
                    self._wake.clear()
                    continue
                self._advance()
        # Raised again in the main thread, by `join`.
        except BaseException as failure:
            self.fail(failure)

    @abstractmethod
    def _advance(self) -> None:
        """Play one exchange, at the pace that is set."""

    def _takes_step(self) -> bool:
        """Whether the exchange that begins is a single step, after which the world stands still."""
        is_single = self._wants_step
        self._wants_step = False
        if is_single:
            self.is_paused = True
        return is_single

    def _obey(self) -> None:
        with self._lock:
            orders, self._orders = self._orders, {}
        for do in orders.values():
            do()


def no_returns(rows: Mapping[str, SlotRows]) -> Returns:
    """Before the first reward."""
    return {name: np.zeros(len(row)) for name, row in rows.items()}


def new_returns(before: Returns, rows: Mapping[str, SlotRows]) -> Returns:
    """The returns with the rewards of these rows; tables of players may have grown since."""
    after = {}
    for name, row in rows.items():
        so_far = np.zeros(len(row))
        known = before.get(name, so_far)
        so_far[: len(known)] = known
        so_far += row.reward + row.group_reward
        # Where an episode begins, the rewards belong to the end of the one before.
        after[name] = np.where(row.begins, 0.0, so_far)
    return after
