"""The page of a world at play: buttons, how it goes, and the panel of an agent.

All viewers share one page: who pauses, pauses for everybody. Callbacks are coroutines, which viser
runs one after the other; ordinary functions would pile up in its pool of threads. `scene_page` adds
the picture of a scene, and the way back in time.
"""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import Any

from touchline.policies.files.run_layout import CHECKPOINT, path_of
from touchline.specs import base_name, team_of
from touchline.viewer.agent_panel import AgentPanel
from touchline.viewer.scoreboard import Tally
from touchline.viewer.sensors_panel import AllSensors
from touchline.viewer.server import close_server, open_server
from touchline.viewer.sheet import BoardRow, board_html, text_html
from touchline.viewer.simulation import Simulation

REFRESH_S = 0.2
"""Between two updates of the figures."""
SPEEDS = {
    "0.1 ×": 0.1,
    "0.25 ×": 0.25,
    "0.5 ×": 0.5,
    "1 ×": 1.0,
    "2 ×": 2.0,
    "4 ×": 4.0,
    "8 ×": 8.0,
    "as fast as it goes": math.inf,
}
PANEL_PX = 340
_FIGURES_STYLE = (
    "<style>"
    f'[data-dock-region="left"] {{width: calc(100% - {PANEL_PX + 4}px) !important}}'
    '[data-dock-region="left"] > [style^="flex-grow"] > div {width: 100% !important}'
    "</style>"
)
"""viser leaves a strip for a picture, which is not there, between the panels and their frames."""


class Page:
    """The page of any world, open on a port from here on; agents are shown by slot."""

    def __init__(
        self, simulation: Simulation, host: str, port: int, title: str, why: str
    ) -> None:
        """`title` names the world, `why` says why it has no picture.

        Raises a UsageError where the port is taken.
        """
        # Of a path, its last part: the page is narrow.
        title = Path(title).name
        self.limits = f"{title} is shown by figures alone: {why}"
        """What the page does not show and why, for the terminal; nothing where it shows all."""
        self._open(simulation, host, port, title, sheet_percent=100)
        self.server.gui.main_panel.set_width(PANEL_PX)
        self.about = self.server.gui.add_html(
            text_html(f"{self.limits}.") + _FIGURES_STYLE
        )
        self._add_controls()
        self._add_restart("Reset the world.")
        self.agent = AgentPanel(self.server, simulation, AllSensors(self.server.gui))

    def _open(
        self,
        simulation: Simulation,
        host: str,
        port: int,
        title: str,
        sheet_percent: int,
    ) -> None:
        self.simulation = simulation
        self.server = open_server(host, port, f"Touchline · {title}", sheet_percent)
        self.server.gui.main_panel.dock_right()
        # Above the folder of a run, which has the order -1; viser counts all others up from 1.
        self._board = self.server.gui.add_html("", order=-2.0)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    @property
    def port(self) -> int:
        return int(self.server.get_port())

    def start(self) -> None:
        self._thread.start()
        self.simulation.start()

    def close(self, farewell: str = "") -> None:
        """End page and simulation; open pages keep showing the farewell. Idempotent."""
        if not self._is_closing:
            self._is_closing = True
            # First the thread that writes to the page: the server must be open for it.
            self._thread.join()
            close_server(self.server, farewell)
            self.simulation.close()

    # controls

    def _add_controls(self) -> None:
        gui = self.server.gui
        self._status = gui.add_markdown("")
        self._note = gui.add_html("")
        self._pause = gui.add_button("Pause")
        self._pause.on_click(self._toggle)
        self._step_button = gui.add_button("Step", hint="Play one decision, and stop.")
        self._step_button.on_click(self._step)
        self._speed = gui.add_dropdown("Speed", tuple(SPEEDS), initial_value="1 ×")
        self._speed.on_update(self._set_speed)

    def _add_restart(self, hint: str) -> None:
        self.server.gui.add_button("Restart", hint=hint).on_click(self._restart)

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

    async def _set_speed(self, _: Any) -> None:
        speed = SPEEDS.get(self._speed.value, 1.0)
        self.simulation.order("speed", lambda: self.simulation.set_speed(speed))

    # the thread that shows

    def _run(self) -> None:
        try:
            self._show_until_closed()
        # Raised in the main thread, where the simulation is waited for.
        except BaseException as failure:
            self.simulation.fail(failure)

    def _show_until_closed(self) -> None:
        while not self._is_closing:
            self.agent.offer_new()
            self._refresh()
            time.sleep(REFRESH_S)

    def _refresh(self) -> None:
        simulation = self.simulation
        self._pause.label = "Resume" if simulation.is_paused else "Pause"
        self._status.content = self._status_text()
        self._note.content = text_html(simulation.note) if simulation.note else ""
        self._board.content = self._board_html()
        self.agent.refresh()

    def _board_html(self) -> str:
        simulation = self.simulation
        board, names = simulation.board, sorted(simulation.actors, key=team_of)
        teams = [team_of(name) for name in names]
        bases = [base_name(name) for name in names]
        rows = []
        for name, team, base in zip(names, teams, bases, strict=True):
            tally = board.ended.get(name, Tally())
            source = path_of(simulation.actors[name].name)
            by = source.name if simulation.replay is None else "as recorded"
            # RUN/BEHAVIOR/checkpoint.pt is the newest of every run: the run's name says more.
            if source.suffix == CHECKPOINT:
                run = source.parent.parent.name
                by = run if source.stem == "checkpoint" else f"{run}: {source.stem}"
            if name in simulation.played_behaviors:
                by = f"{by} and you"
            color = board.team_names[team] if team < len(board.team_names) else ""
            who = base if bases.count(base) == 1 else f"{base}, {board.name_of(team)}"
            rows.append(
                BoardRow(
                    color,
                    who=color if teams.count(team) == 1 and color else who,
                    plays=by,
                    won=f"{board.won[team]:g}" if team in board.won else "",
                    ended=str(tally.episodes),
                    mean_return="–" if tally.mean is None else f"{tally.mean:.3f}",
                )
            )
        return board_html(rows, board.last)

    def _status_text(self) -> str:
        state = "paused" if self.simulation.is_paused else "playing"
        return f"**decision {self.simulation.decisions}** · {state}"
