"""The page of a scene: what its controls order, and what of the simulation it shows."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from touchline.viewer.agent_panel import AgentPanel
from touchline.viewer.base_page import BasePage
from touchline.viewer.run_panel import RunPanel
from touchline.viewer.server import open_server
from touchline.viewer.simulation import Frame, Simulation
from touchline.viewer.stage import WIDE, Stage, camera_of

REFRESH_S = 0.2
"""Between two updates of the figures and the slider."""
FIXED_S = 0.5
"""Between two looks at floors and walls, which change with episodes at most."""
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
ALL_AREAS = "all"


class Page(BasePage[Simulation]):
    """The page of one simulation, open on a port from here on."""

    def __init__(
        self, simulation: Simulation, host: str, port: int, record: Path | None = None
    ) -> None:
        """`record` is the .demo file that recordings are written to; None: viewers get them.

        Raises a UsageError where the port is taken.
        """
        name = simulation.env.scene.name
        server = open_server(host, port, f"Touchline · {name}")
        super().__init__(simulation, server)
        self.stage = Stage(self.server, self._click)
        self.run: RunPanel | None = None
        """About the training run that is followed, if any."""
        self._scrubbed_s = -math.inf
        self._drawn = -1
        self._fixed_s = -math.inf
        self._shown_areas = simulation.shown_areas
        self._add_controls()
        self.agent = AgentPanel(self.server, simulation, record)
        self.agent.offer(simulation.shown_areas)
        self._draw(simulation.frame)
        self._aim()
        self.server.on_client_connect(self._meet)
        self.server.on_client_disconnect(self._part)
        self._start()

    def close(self, farewell: str = "") -> None:
        super().close(farewell)
        self.agent.close()

    # controls

    def _add_controls(self) -> None:
        gui = self.server.gui
        simulation = self.simulation
        gui.main_panel.dock_right()
        self._status = gui.add_markdown("")
        self._add_pause_and_step()
        self._speed = gui.add_dropdown("Speed", tuple(SPEEDS), initial_value="1 ×")
        self._speed.on_update(self._set_speed)
        areas = [str(area) for area in range(simulation.env.num_areas)]
        self._area = gui.add_dropdown("Area", (*areas, ALL_AREAS), initial_value="0")
        self._area.on_update(self._show_area)
        self._time = gui.add_slider(
            "Time (s)",
            min=0.0,
            max=0.1,
            step=0.02,
            initial_value=0.0,
            hint="Go back to any moment; Resume goes on from there.",
        )
        self._time.on_update(self._scrub)
        self._add_restart("New episodes, with the next seed.")

    async def _set_speed(self, _: Any) -> None:
        speed = SPEEDS.get(self._speed.value, 1.0)
        self.simulation.order("speed", lambda: self.simulation.set_speed(speed))

    async def _show_area(self, _: Any) -> None:
        count = self.simulation.env.num_areas
        text = self._area.value
        # A page may send any text.
        if text == ALL_AREAS:
            areas = tuple(range(count))
        elif text.isdecimal() and int(text) < count:
            areas = (int(text),)
        else:
            return
        self.simulation.order("areas", lambda: self.simulation.show_areas(areas))

    async def _scrub(self, event: Any) -> None:
        if event.client is None:
            return  # moved by `_refresh`
        self._scrubbed_s = time.monotonic()
        time_s = float(self._time.value)
        self.simulation.order("go", lambda: self.simulation.go_to(time_s))

    async def _click(self, event: viser.SceneNodePointerEvent[Any]) -> None:
        eye = np.array(event.ray_origin)
        self.agent.pick(self.stage, eye, np.array(event.ray_direction))

    # viewers

    async def _meet(self, client: viser.ClientHandle) -> None:
        self.simulation.is_watched = True
        self.agent.meet(client)
        aimed = WIDE

        async def fit(camera: viser.CameraHandle) -> None:
            """Aim again where the page became narrow: at first no page knows its size."""
            nonlocal aimed
            before, aimed = aimed, camera.aspect
            if min(before, aimed) < WIDE and abs(before - aimed) > 0.05:
                self._aim_one(client)

        client.camera.on_update(fit)
        await fit(client.camera)

    async def _part(self, client: viser.ClientHandle) -> None:
        self.agent.part(client)
        self.simulation.is_watched = bool(self.server.get_clients())

    # the thread that draws

    def _show_until_closed(self) -> None:
        refreshed = -math.inf
        while not self._is_closing:
            frame = self.simulation.wait_for_frame(self._drawn, REFRESH_S)
            if frame.number != self._drawn:
                self._draw(frame)
            is_due = time.monotonic() - refreshed >= REFRESH_S
            if is_due and self.simulation.is_watched:
                refreshed = time.monotonic()
                self._refresh()

    def _draw(self, frame: Frame) -> None:
        now = time.monotonic()
        with_fixed = now - self._fixed_s >= FIXED_S
        if with_fixed:
            self._fixed_s = now
        # Together, or pages would draw half of a movement.
        with self.server.atomic():
            self.stage.show(frame.tableaux, with_fixed=with_fixed)
            seat = self.simulation.selected
            offset = None if seat is None else self.stage.offsets.get(seat.area)
            self.agent.draw(frame, offset)
            names = None if self.run is None else self.run.names
            sides = (
                [] if names is None else [names[area < 0] for area in frame.tableaux]
            )
            self.stage.label(sides)
        self._drawn = frame.number
        areas = tuple(frame.tableaux)
        if areas != self._shown_areas:
            self._shown_areas = areas
            self.agent.offer([area for area in areas if area >= 0])
            self._aim()

    def _aim(self) -> None:
        """Point all viewers' cameras at the shown areas."""
        start = self.server.initial_camera
        start.position, start.look_at, start.fov = self._view(WIDE)
        for client in self.server.get_clients().values():
            self._aim_one(client)

    def _aim_one(self, client: viser.ClientHandle) -> None:
        camera = client.camera
        camera.position, camera.look_at, camera.fov = self._view(camera.aspect)

    def _view(
        self, aspect: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        tableau = next(iter(self.simulation.frame.tableaux.values()))
        places = list(self.stage.places.values())
        return camera_of(tableau.camera, places, aspect)

    def _refresh(self) -> None:
        """Show how it goes."""
        self.agent.refresh()
        if self.run is not None:
            self.run.refresh()
        status = self.simulation.status
        self._show_whether_paused(status.is_paused)
        state = "paused" if status.is_paused else f"{status.speed:.2g} ×"
        kept_mb = status.history_bytes / 2**20
        self._status.content = (
            f"**{status.time_s:.2f} s** · {state} · seed {self.simulation.seed}  \n"
            f"{status.latest_s - status.earliest_s:.0f} s kept, {kept_mb:.0f} MiB"
        )
        is_scrubbing = time.monotonic() - self._scrubbed_s < 1.0
        if is_scrubbing:
            return  # or the handle would jump under the viewer's finger
        self._time.min = min(status.earliest_s, status.latest_s - 0.1)
        self._time.max = status.latest_s
        self._time.value = status.time_s if status.is_paused else status.latest_s
