"""What every page has: a thread that keeps it up to date, and buttons to pause, step and restart.

All viewers share one page: who pauses, pauses for everybody. Callbacks are coroutines, which viser
runs one after the other; ordinary functions would pile up in its pool of threads.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import viser

from touchline.viewer.playing import Playing
from touchline.viewer.server import close_server

World = TypeVar("World", bound=Playing)


class BasePage(ABC, Generic[World]):
    """A page of a world at play; a subclass adds what it shows, then calls `_start`."""

    limits: str = ""
    """What it does not show and why, for the terminal; nothing where it shows everything."""

    def __init__(self, simulation: World, server: viser.ViserServer) -> None:
        self.simulation = simulation
        self.server = server
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server.get_port())

    def close(self, farewell: str = "") -> None:
        """End page and simulation; open pages keep showing the farewell. Idempotent."""
        if not self._is_closing:
            self._is_closing = True
            self._thread.join()
            close_server(self.server, farewell)
            self.simulation.close()

    @abstractmethod
    def _show_until_closed(self) -> None:
        """Keep the page up to date until `_is_closing`."""

    def _start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self._show_until_closed()
        # Raised in the main thread, where the simulation is waited for.
        except BaseException as failure:
            self.simulation.fail(failure)

    # controls

    def _add_pause_and_step(self) -> None:
        self._pause = self.server.gui.add_button("Pause")
        self._pause.on_click(self._toggle)
        step = self.server.gui.add_button("Step", hint="Play one decision, and stop.")
        step.on_click(self._step)

    def _add_restart(self, hint: str) -> None:
        self.server.gui.add_button("Restart", hint=hint).on_click(self._restart)

    def _show_whether_paused(self, is_paused: bool) -> None:
        self._pause.label = "Resume" if is_paused else "Pause"

    async def _toggle(self, _: Any) -> None:
        simulation = self.simulation
        if simulation.is_paused:
            simulation.order("play", simulation.resume)
        else:
            simulation.order("play", simulation.pause)

    async def _step(self, _: Any) -> None:
        self.simulation.order("step", self.simulation.step_once)

    async def _restart(self, _: Any) -> None:
        self.simulation.order("go", self.simulation.restart)
