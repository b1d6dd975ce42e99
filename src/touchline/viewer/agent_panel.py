"""The part of the page about one agent: choose it, see what it sees, play in its place."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import viser
from numpy.typing import NDArray

from touchline.physics.frames import swap_axes
from touchline.protocol.demonstrations import SUFFIX, DemoFile, encode_demo
from touchline.training.recording import write_demos
from touchline.viewer.curve import add_curve
from touchline.viewer.hands import action_of
from touchline.viewer.insight import Insight, Seat
from touchline.viewer.keys import keys_of, listener_html, no_listener_html
from touchline.viewer.sheet import PALETTE, facts_html, observation_html, outlook_html
from touchline.viewer.simulation import Frame, Simulation
from touchline.viewer.stage import ROOT, Stage

NO_AGENT = "none"
KEYS_FIELD = "Keys held"
PICK_M = 1.5
"""A click this close to an agent's center means it."""
CURVE_S = 1.0
"""Between two looks at the curve of returns."""
LONGEST_KEYS = 200
"""A page may send any text as its held keys."""
HIT_COLOR, MISS_COLOR = (217, 66, 56), (150, 156, 164)


class AgentPanel:
    """Controls and figures of the selected agent."""

    def __init__(
        self,
        server: viser.ViserServer,
        simulation: Simulation,
        record: Path | None = None,
    ) -> None:
        """`record` is the .demo file that recordings are written to; None: viewers get them."""
        self._server = server
        self._record_path = record
        self._num_written = 0
        self._simulation = simulation
        self._keys = keys_of(simulation.env.scene.name)
        self._seats: dict[str, Seat] = {}
        self._seat: Seat | None = None
        self._player: viser.ClientHandle | None = None
        """The page that took the agent over; its keys alone count."""
        self._listener: viser.GuiHtmlHandle | None = None
        """What listens to the keyboard, in the player's page alone."""
        self._pressed = ""
        """The keys that the player holds, as its page wrote them."""
        self._curve_s = -math.inf
        self._lines: viser.LineSegmentsHandle | None = None
        """Its rays, or the cells of its grid."""
        self._add_controls()

    def offer(self, areas: Sequence[int]) -> None:
        """Offer the agents of these areas, and none of them yet."""
        self._seats = {}
        for area in areas:
            place = f"{area}." if len(areas) > 1 else ""
            for seat, name in self._simulation.seats(area).items():
                self._seats[f"{place}{seat.agent} · {name}"] = seat
        self._agent.options = (NO_AGENT, *self._seats)
        self._agent.value = NO_AGENT

    def pick(
        self, stage: Stage, eye: NDArray[np.float64], direction: NDArray[np.float64]
    ) -> None:
        """Select the agent that a viewer points at, in the page's frame."""
        best = PICK_M
        chosen = None
        tableaux = self._simulation.frame.tableaux
        bodies = self._simulation.env.scene.agent_shapes()
        places = stage.places
        for label, seat in self._seats.items():
            if seat.area not in tableaux or seat.agent >= len(bodies):
                continue
            moving = tableaux[seat.area].moving
            center = moving.position[bodies[seat.agent]] + places[seat.area]
            way = swap_axes(center) - eye
            distance = float(np.linalg.norm(np.cross(way, direction)))
            if distance < best:
                best, chosen = distance, label
        if chosen is not None:
            self._agent.value = chosen

    def draw(self, frame: Frame, offset: NDArray[np.float64] | None) -> None:
        """Draw the selected agent's rays or grid; `offset`: where its area is, None: not shown."""
        seen = _lines(frame)
        if seen is None or offset is None:
            if self._lines is not None:
                self._lines.visible = False
            return
        points = swap_axes(seen[0] + offset).astype(np.float32)
        colors = np.broadcast_to(seen[1][:, None], points.shape).copy()
        if self._lines is None or len(self._lines.points) != len(points):
            self._lines = self._server.scene.add_line_segments(
                f"{ROOT}/seen", points, colors, thickness=2.0, thickness_units="screen"
            )
        self._lines.points = points
        self._lines.colors = colors
        self._lines.visible = True

    def refresh(self) -> None:
        """Show the selected agent's figures as they are now."""
        tape = self._simulation.tape
        self._record.label = (
            "Record" if tape is None else f"End recording ({len(tape)})"
        )
        if self._seat is None:
            return
        insight = self._simulation.insight(self._seat)
        if insight is None:
            self._facts.content = facts_html([("agent", "away")])
            return
        self._show(insight)
        now = time.monotonic()
        if now - self._curve_s >= CURVE_S:
            self._curve_s = now
            times, returns = self._simulation.curve(self._seat)
            if len(times):
                self._curve.data = (times, returns)

    def meet(self, client: viser.ClientHandle) -> None:
        """A page was opened: it goes on playing where the player's page is gone, as on reload."""
        if self._take.value and self._player is None:
            self._listen_to(client)

    def part(self, client: viser.ClientHandle) -> None:
        """A page was closed: release its keys if it was the player's."""
        if self._is_player(client):
            self._player = None
            self._release_keys()

    def close(self) -> None:
        """Write what is still being recorded; the simulation has ended."""
        self._deliver(self._simulation.end_recording(), None)

    def _show(self, insight: Insight) -> None:
        self._facts.content = facts_html(
            [
                ("behavior", insight.behavior),
                ("rewards so far", f"{insight.episode_return:.3f}"),
            ]
        )
        self._outlook.content = outlook_html(insight.outlook)
        names = _sensor_names(insight)
        if tuple(self._sensor.options) != names:
            self._sensor.options = names
        chosen = self._sensor.value
        index = names.index(chosen) if chosen in names else 0
        self._numbers.content = observation_html(insight.obs[index])

    # controls

    def _add_controls(self) -> None:
        gui = self._server.gui
        self._folder = gui.add_folder("Agent")
        with self._folder:
            self._agent = gui.add_dropdown("Agent", (NO_AGENT,), initial_value=NO_AGENT)
            self._agent.on_update(self._choose)
            self._facts = gui.add_html("", visible=False)
            self._take = gui.add_checkbox("Take over", False, visible=False)
            self._take.on_update(self._take_over)
            self._held = gui.add_text(KEYS_FIELD, "", visible=False)
            self._held.on_update(self._press)
            self._record = gui.add_button("Record", visible=False)
            self._record.on_click(self._toggle_recording)
            self._curve = add_curve(gui, "rewards so far", visible=False)
            self._outlook = gui.add_html("", visible=False)
            self._sensor = gui.add_dropdown("Sensor", ("-",), visible=False)
            self._numbers = gui.add_html("", visible=False)

    async def _choose(self, event: Any) -> None:
        self._let_go(event.client)
        seat = self._seats.get(self._agent.value)
        self._seat = seat
        self._curve_s = -math.inf
        shown = seat is not None
        for handle in (
            self._facts,
            self._curve,
            self._outlook,
            self._sensor,
            self._numbers,
        ):
            handle.visible = shown
        self._take.visible = shown and bool(self._keys)
        self._simulation.order("select", lambda: self._simulation.select(seat))

    async def _take_over(self, event: Any) -> None:
        if event.client is None:
            return  # set by `_let_go`
        if not self._take.value:
            self._let_go(event.client)
            return
        self._held.visible = True
        self._listen_to(event.client)
        self._release_keys()
        self._record.visible = True
        if self._record_path is not None:
            self._start_recording()

    def _listen_to(self, client: viser.ClientHandle) -> None:
        """Let this page be the player's, whose keyboard is heard."""
        self._player = client
        with self._folder:
            content = listener_html(self._keys, KEYS_FIELD)
            self._listener = client.gui.add_html(content)

    def _is_player(self, client: viser.ClientHandle | None) -> bool:
        player = self._player
        if player is None or client is None:
            return False
        return bool(player.client_id == client.client_id)

    def _release_keys(self) -> None:
        self._pressed = self._held.value = ""
        self._play(())

    async def _press(self, event: Any) -> None:
        if not self._take.value or event.client is None:
            return  # set by this class
        if self._is_player(event.client):
            self._pressed = self._held.value[:LONGEST_KEYS]
            if self._pressed != self._held.value:
                # Otherwise the text would be kept, and sent to every page that opens later.
                self._held.value = self._pressed
            self._play(self._pressed.split())
        else:
            # Of another page, which has this field, too. viser reports only values that differ
            # from the last one: left as it is, this one could hide what the player does next.
            self._held.value = self._pressed

    def _play(self, held: tuple[str, ...] | list[str]) -> None:
        """Let the agent do what these keys say."""
        seat, simulation = self._seat, self._simulation
        if seat is None:
            return
        name = simulation.seats(seat.area).get(seat)
        if name is None:
            return
        action = action_of(
            self._keys, held, simulation.slots.behaviors[name].action_spec
        )
        simulation.order(f"hands {seat}", lambda: simulation.take_over(seat, action))

    async def _toggle_recording(self, event: Any) -> None:
        if self._simulation.tape is None:
            self._start_recording()
        else:
            self._end_recording(event.client)

    def _start_recording(self) -> None:
        seat, simulation = self._seat, self._simulation
        if seat is not None:
            simulation.order("tape", lambda: simulation.record(seat))

    def _end_recording(self, viewer: viser.ClientHandle | None) -> None:
        """Stop; the file is the player's, or this viewer's where the player's page is gone."""
        simulation, client = self._simulation, self._player or viewer
        simulation.order(
            "tape", lambda: self._deliver(simulation.end_recording(), client)
        )

    def _deliver(
        self, files: Mapping[str, DemoFile], client: viser.ClientHandle | None
    ) -> None:
        """Write a recording to the file that was named, or else send it to a viewer."""
        if not files:
            return
        path = self._record_path
        if path is not None:
            self._num_written += 1
            if self._num_written > 1:
                path = path.with_name(f"{path.stem}-{self._num_written}{path.suffix}")
            write_demos(files, path)
        elif client is not None:
            for name, file in files.items():
                text = name.replace("?team=", "-") + SUFFIX
                client.send_file_download(
                    text, encode_demo(file), save_immediately=True
                )

    def _let_go(self, viewer: viser.ClientHandle | None) -> None:
        """Give the agent back to its policy, because this viewer wants that."""
        seat, simulation = self._seat, self._simulation
        self._record.visible = False
        if simulation.tape is not None:
            self._end_recording(viewer)
        self._take.value = False
        self._held.visible = False
        if self._listener is not None:
            self._listener.content = no_listener_html()
        self._player = self._listener = None
        if seat is not None:
            simulation.order(f"hands {seat}", lambda: simulation.take_over(seat, None))


def _sensor_names(insight: Insight) -> tuple[str, ...]:
    """A text for each sensor: its number, its name and its shape."""
    return tuple(
        f"{number} {sensor.name} {list(sensor.shape)}"
        for number, sensor in enumerate(insight.spec.observation_specs)
    )


def _lines(frame: Frame) -> tuple[NDArray[np.float64], NDArray[np.uint8]] | None:
    """What the selected agent's sensor shows, as segments [K, 2, 3] with their colors [K, 3].

    None where nothing is selected, or the agent has neither rays nor a grid.
    """
    if frame.rays is not None:
        rays = frame.rays
        colors = np.where((rays.tag >= 0)[:, None], HIT_COLOR, MISS_COLOR)
        return np.stack([rays.start, rays.end], axis=1), colors.astype(np.uint8)
    if frame.cells is None or not len(frame.cells.tag):
        return None
    corners = frame.cells.corners
    edges = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2)
    colors = PALETTE[frame.cells.tag % len(PALETTE)]
    return edges.reshape(-1, 2, 3), np.repeat(colors, 4, axis=0)
