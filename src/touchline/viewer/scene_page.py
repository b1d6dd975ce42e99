"""The page of a scene: its picture in 3-D, and the way back in time."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from touchline.log import Log
from touchline.physics.frames import swap_axes
from touchline.viewer.agent_panel import AgentPanel
from touchline.viewer.backdrop import line_colors
from touchline.viewer.hands_panel import HandsPanel
from touchline.viewer.insight import Seat
from touchline.viewer.page import REFRESH_S, Page
from touchline.viewer.run_panel import RunPanel
from touchline.viewer.scene_simulation import Frame, SceneSimulation
from touchline.viewer.sheet import PALETTE
from touchline.viewer.stage import ROOT, WIDE, Stage, camera_of

FIXED_S = 0.5
"""Between two looks at floors and walls, which change with episodes at most."""
PICK_M = 1.5
"""A click this close to an agent's center means it."""
MISS_COLOR = (150, 156, 164)
ALL_AREAS = "all"


class ScenePage(Page):
    """The page of one scene, open on a port from here on."""

    simulation: SceneSimulation

    def __init__(
        self,
        simulation: SceneSimulation,
        host: str,
        port: int,
        record: Path | None = None,
        log: Log = print,
    ) -> None:
        """`record` is the .demo file that recordings are written to; None: viewers get them.

        Raises a UsageError where the port is taken.
        """
        self.limits = ""
        self._open(simulation, host, port, simulation.env.scene.name, sheet_percent=50)
        self.stage = Stage(self.server, self._click)
        self.run: RunPanel | None = None
        """About the training run that is followed, if any."""
        self._scrubbed_s = -math.inf
        self._drawn = -1
        self._fixed_s = -math.inf
        self._shown_areas = simulation.shown_areas
        self._lines: viser.LineSegmentsHandle | None = None
        """The selected agent's rays, or the cells of its grid."""
        self._branches: dict[str, int] = {}
        """Numbers of the history's branches by their labels."""
        self._add_controls()
        back = self.server.gui.add_button(
            "Step back",
            hint="Go back to the moment before.",
            order=self._step_button.order + 0.5,
        )
        back.on_click(self._step_back)
        self._add_time_and_place()
        self._add_restart("New episodes, with the next seed.")
        self.hands = HandsPanel(self.server, simulation, record, log)
        self.agent = AgentPanel(self.server, simulation, hands=self.hands)
        self.agent.offer_anew()
        self._draw(simulation.frame)
        self._aim()
        self.server.on_client_connect(self._meet)
        self.server.on_client_disconnect(self._part)

    def close(self, farewell: str = "") -> None:
        super().close(farewell)
        self.hands.close()

    # controls

    def _add_time_and_place(self) -> None:
        gui = self.server.gui
        areas = [str(area) for area in range(self.simulation.env.num_areas)]
        self._area = gui.add_dropdown("Area", (*areas, ALL_AREAS), initial_value="0")
        self._area.on_update(self._show_area)
        self._time = gui.add_slider(
            "Time (s)",
            min=0.0,
            # Until the first refresh; viser shortens the step to the length, so that may not be 0.
            max=0.1,
            step=0.02,
            initial_value=0.0,
            hint="Go back to any moment; Resume and Step follow what was recorded.",
        )
        self._time.on_update(self._scrub)
        self._branch = gui.add_dropdown(
            "Branch",
            ("1",),
            visible=False,
            hint="Every change in the past began another future: go to where it began.",
        )
        self._branch.on_update(self._choose_branch)

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

    async def _step_back(self, _: Any) -> None:
        self.simulation.order("step", self.simulation.step_back)

    async def _choose_branch(self, event: Any) -> None:
        number = self._branches.get(self._branch.value)
        if event.client is not None and number is not None:
            self.simulation.order("go", lambda: self.simulation.choose_branch(number))

    async def _click(self, event: viser.SceneNodePointerEvent[Any]) -> None:
        # In meters, as bodies and PICK_M are; the direction has length 1 in any unit.
        eye = np.array(event.ray_origin) / self.stage.unit
        seat = self._seat_at(eye, np.array(event.ray_direction))
        if seat is not None:
            self.agent.pick(seat)

    def _seat_at(
        self, eye: NDArray[np.float64], direction: NDArray[np.float64]
    ) -> Seat | None:
        """The agent that a viewer points at, in the page's frame."""
        best = PICK_M
        chosen = None
        bodies = self.simulation.env.scene.agent_shapes()
        tableaux = self.simulation.frame.tableaux
        places = self.stage.places
        for seat in self.simulation.agents().values():
            assert isinstance(seat, Seat)
            if seat.area not in tableaux or seat.agent >= len(bodies):
                continue
            moving = tableaux[seat.area].moving
            center = moving.position[bodies[seat.agent]] + places[seat.area]
            way = swap_axes(center) - eye
            distance = float(np.linalg.norm(np.cross(way, direction)))
            if distance < best:
                best, chosen = distance, seat
        return chosen

    # viewers

    async def _meet(self, client: viser.ClientHandle) -> None:
        self.simulation.is_watched = True
        self.hands.meet(client)
        aimed = WIDE

        async def fit(camera: viser.CameraHandle) -> None:
            """Aim again where the page became narrow: at first no page knows its size."""
            nonlocal aimed
            before, aimed = aimed, camera.aspect
            # A page that is slow to begin may take its first camera after ours.
            first = self.server.initial_camera.position
            is_first = aimed < WIDE and np.allclose(camera.position, first, atol=1e-6)
            is_other = min(before, aimed) < WIDE and abs(before - aimed) > 0.05
            if is_first or is_other:
                self._aim_one(client)

        client.camera.on_update(fit)
        await fit(client.camera)

    async def _part(self, client: viser.ClientHandle) -> None:
        self.hands.part(client)
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
            where, size_m = self._selected_place(frame)
            followed = where if self.agent.follows else None
            self.stage.show(frame.tableaux, with_fixed=with_fixed, followed=followed)
            self.stage.mark(where, size_m)
            self._draw_lines(frame)
            names = None if self.run is None else self.run.names
            sides = (
                [] if names is None else [names[area < 0] for area in frame.tableaux]
            )
            self.stage.label(sides)
        self._drawn = frame.number
        areas = tuple(frame.tableaux)
        if areas != self._shown_areas:
            self._shown_areas = areas
            self.agent.offer_anew()
            self._aim()

    def _selected_place(self, frame: Frame) -> tuple[NDArray[np.float64] | None, float]:
        """Where the selected agent is in the scene, and its size; None where none is shown."""
        seat = self.simulation.selected
        bodies = self.simulation.env.scene.agent_shapes()
        if not isinstance(seat, Seat) or seat.area not in self.stage.offsets:
            return None, 1.0
        if seat.area not in frame.tableaux or seat.agent >= len(bodies):
            return None, 1.0
        moving = frame.tableaux[seat.area].moving
        body = bodies[seat.agent]
        if not moving.shown[body]:
            return None, 1.0
        position = moving.position[body] + self.stage.offsets[seat.area]
        return position, float(np.abs(moving.size[body]).max())

    def _draw_lines(self, frame: Frame) -> None:
        seat = self.simulation.selected
        offset = self.stage.offsets.get(seat.area) if isinstance(seat, Seat) else None
        seen = _lines(frame)
        if seen is None or offset is None:
            if self._lines is not None:
                self._lines.visible = False
            return
        points = self.stage.on_page(seen[0] + offset).astype(np.float32)
        shown = line_colors(seen[1] / 255)
        # viser blends between the colors of a segment's two ends, so both ends get the same.
        colors = np.broadcast_to(shown[:, None], points.shape).copy()
        if self._lines is None or len(self._lines.points) != len(points):
            self._lines = self.server.scene.add_line_segments(
                f"{ROOT}/seen", points, colors, thickness=2.0, thickness_units="screen"
            )
        self._lines.points = points
        self._lines.colors = colors
        self._lines.visible = True

    def _aim(self) -> None:
        self.stage.look(self.server.initial_camera, self._view(WIDE))
        for client in self.server.get_clients().values():
            self._aim_one(client)

    def _aim_one(self, client: viser.ClientHandle) -> None:
        self.stage.look(client.camera, self._view(client.camera.aspect))

    def _view(
        self, aspect: float
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        tableau = next(iter(self.simulation.frame.tableaux.values()))
        places = list(self.stage.places.values())
        return camera_of(tableau.camera, places, aspect, self.stage.size_m)

    def _refresh(self) -> None:
        super()._refresh()
        if self.run is not None:
            self.run.refresh()
        history = self.simulation.history
        labels = {
            f"{number} · from {branch.begin_s:.1f} s": number
            for number, branch in history.branches.items()
        }
        if labels != self._branches:
            self._branches = labels
            self._branch.options = tuple(labels)
        self._branch.visible = len(labels) > 1
        for label, number in labels.items():
            if number == history.number:
                self._branch.value = label
        is_scrubbing = time.monotonic() - self._scrubbed_s < 1.0
        if is_scrubbing:
            return  # or the handle would jump under the viewer's finger
        latest_s = history[-1].time_s
        # Just after a restart both ends are the same moment, and a slider needs a length.
        self._time.min = min(history[0].time_s, latest_s - 0.1)
        self._time.max = latest_s
        self._time.value = min(self.simulation.shown_s, latest_s)

    def _status_text(self) -> str:
        simulation, history = self.simulation, self.simulation.history
        speed = f"{simulation.pace.measured:.2g} ×"
        state = "paused" if simulation.is_paused else speed
        kept_s = history[-1].time_s - history[0].time_s
        kept_mb = history.num_bytes / 2**20
        return (
            f"**{simulation.shown_s:.2f} s** · {state} · seed {simulation.seed}  \n"
            f"{kept_s:.0f} s kept, {kept_mb:.0f} MiB"
        )


def _lines(frame: Frame) -> tuple[NDArray[np.float64], NDArray[np.uint8]] | None:
    """What the selected agent's sensor shows, as segments [K, 2, 3] with their colors [K, 3].

    None where nothing is selected, or the agent has neither rays nor a grid.
    """
    if frame.rays is not None:
        rays = frame.rays
        met = PALETTE[rays.tag % len(PALETTE)]
        colors = np.where((rays.tag >= 0)[:, None], met, MISS_COLOR)
        return np.stack([rays.start, rays.end], axis=1), colors.astype(np.uint8)
    if frame.cells is None or not len(frame.cells.tag):
        return None
    corners = frame.cells.corners
    edges = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2)
    colors = PALETTE[frame.cells.tag % len(PALETTE)]
    return edges.reshape(-1, 2, 3), np.repeat(colors, 4, axis=0)
