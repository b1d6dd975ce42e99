"""The page of a world without shapes: its agents' observations as pictures, fans and bars.

Agents are shown by slot.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from touchline.specs import ActionTuple, ObservationSpec
from touchline.viewer.base_page import BasePage
from touchline.viewer.curve import add_curve
from touchline.viewer.fans import FanReader, is_ray_sensor
from touchline.viewer.insight import Insight
from touchline.viewer.plain_simulation import DECISIONS_PER_S, Place, PlainSimulation
from touchline.viewer.server import open_server
from touchline.viewer.sheet import (
    bars_html,
    facts_html,
    fan_html,
    image_html,
    numbers_html,
    outlook_html,
    text_html,
)

REFRESH_S = 0.2
"""Between two updates of everything that is shown."""
CURVE_S = 1.0
PACES = {
    f"{pace:g} a second": pace for pace in (1.0, 2.0, 5.0, DECISIONS_PER_S, 20.0, 50.0)
} | {"as fast as it goes": math.inf}
FAN_DEG = 70.0
"""Unity's default of the outermost rays' angle, which is not on the wire."""
FEW_NUMBERS = 64
"""So many are also written out below their bars."""
MOST_SENSORS = 24
"""That are shown of an agent."""
PANEL_PX, FIGURES_PX = 340.0, 600.0


class PlainPage(BasePage[PlainSimulation]):
    """The page of one world without shapes, open on a port from here on."""

    def __init__(
        self, simulation: PlainSimulation, host: str, port: int, title: str, why: str
    ) -> None:
        """`title` names the world, `why` says why it has no picture.

        Raises a UsageError where the port is taken.
        """
        # Of a path, its last part: the page is narrow.
        title = Path(title).name
        server = open_server(host, port, f"Touchline · {title}", sheet_percent=100)
        super().__init__(simulation, server)
        self._place: Place | None = None
        self._places: dict[str, Place] = {}
        self._readers: dict[tuple[str, int], FanReader] = {}
        """By behavior and number of the sensor."""
        self._curve_s = -math.inf
        self._shown: object = None
        """The rows of the last look: nothing is drawn twice."""
        self.limits = f"{title} is shown by figures alone: {why}"
        self._add_controls(f"{self.limits}.")
        self._add_figures()
        self._start()

    # controls

    def _add_controls(self, about: str) -> None:
        gui = self.server.gui
        gui.main_panel.dock_right()
        gui.main_panel.set_width(PANEL_PX)
        self._about = gui.add_html(text_html(about))
        self._status = gui.add_markdown("")
        self._note = gui.add_html("")
        self._add_pause_and_step()
        at_first = f"{DECISIONS_PER_S:g} a second"
        self._pace = gui.add_dropdown("Decisions", tuple(PACES), initial_value=at_first)
        self._pace.on_update(self._set_pace)
        self._add_restart("Reset the world.")

    async def _set_pace(self, _: Any) -> None:
        pace = PACES.get(self._pace.value, DECISIONS_PER_S)
        self.simulation.order("pace", lambda: self.simulation.set_pace(pace))

    async def _choose(self, _: Any) -> None:
        self._place = self._places.get(self._agent.value)
        self._curve_s = -math.inf
        self._shown = None

    # figures

    def _add_figures(self) -> None:
        gui = self.server.gui
        self._agent = gui.add_dropdown("Agent", ("-",), initial_value="-")
        self._agent.on_update(self._choose)
        self._facts = gui.add_html("")
        self._curve = add_curve(gui, "rewards so far")
        self._outlook = gui.add_html("")
        # A panel of its own: on a wide page it is where scenes have their picture.
        panel = gui.add_panel()
        with panel.add_tab("Observations"):
            self._observations = gui.add_html("")
        panel.dock_left()
        panel.set_width(FIGURES_PX)
        panel.expand()

    def _show_until_closed(self) -> None:
        while not self._is_closing:
            self._refresh()
            time.sleep(REFRESH_S)

    def _refresh(self) -> None:
        simulation = self.simulation
        self._show_whether_paused(simulation.is_paused)
        state = "paused" if simulation.is_paused else "playing"
        self._status.content = f"**decision {simulation.decisions}** · {state}"
        self._note.content = text_html(simulation.note) if simulation.note else ""
        self._offer()
        place = self._place
        if place is None or simulation.rows is self._shown:
            return
        self._shown = simulation.rows
        insight = simulation.insight(place)
        if insight is None:
            self._facts.content = facts_html([("agent", "away")])
            return
        self._show(place, insight)
        now = time.monotonic()
        if now - self._curve_s >= CURVE_S:
            self._curve_s = now
            numbers, returns = simulation.curve(place)
            if len(numbers):
                self._curve.data = (numbers, returns)

    def _offer(self) -> None:
        """Offer the agents that are there, and select the first one that ever was."""
        places = {
            f"{place.slot} · {place.behavior}": place
            for place in self.simulation.places()
        }
        if places.keys() == self._places.keys() or not places:
            return
        self._places = places
        chosen = self._agent.value
        self._agent.options = tuple(places)
        if chosen not in places:
            chosen = next(iter(places))
        self._agent.value = chosen
        self._place = places[chosen]
        self._shown = None

    def _show(self, place: Place, insight: Insight) -> None:
        simulation = self.simulation
        rows = simulation.rows[place.behavior]
        facts = [
            ("behavior", insight.behavior),
            ("agent id", str(rows.agent_id[place.slot])),
            ("rewards so far", f"{insight.episode_return:.3f}"),
            ("last reward", f"{rows.reward[place.slot]:.3f}"),
        ]
        taken = simulation.taken.get(place.behavior)
        if taken is not None and place.slot < len(taken):
            facts.append(("last action", _action_text(taken, place.slot)))
        self._facts.content = facts_html(facts)
        self._outlook.content = outlook_html(insight.outlook)
        sensors = insight.spec.observation_specs
        parts = [
            self._sensor_html(insight, number, sensor)
            for number, sensor in enumerate(sensors[:MOST_SENSORS])
        ]
        if len(sensors) > MOST_SENSORS:
            parts.append(text_html(f"... {len(sensors) - MOST_SENSORS} more sensors"))
        self._observations.content = "".join(parts)

    def _sensor_html(
        self, insight: Insight, number: int, sensor: ObservationSpec
    ) -> str:
        """A sensor's name, and what it shows as a picture, a fan or bars."""
        values = np.asarray(insight.obs[number])
        name = text_html(
            f"{number} {sensor.name or 'without a name'} {list(sensor.shape)}"
        )
        if values.ndim == 3:
            return name + image_html(values)
        if is_ray_sensor(sensor):
            key = insight.behavior, number
            reader = self._readers.setdefault(key, FanReader(sensor))
            layout = reader.read(values)
            if layout is not None:
                about = (
                    f"{layout.rays} rays, {layout.tags} tags; the wire has no angles, drawn over "
                    f"±{FAN_DEG:.0f}°"
                )
                fan = fan_html(layout.newest(values), FAN_DEG)
                return name + fan + text_html(about)
        written = numbers_html(values) if values.size <= FEW_NUMBERS else ""
        return name + bars_html(values) + written


def _action_text(actions: ActionTuple, slot: int) -> str:
    """One agent's action: continuous numbers, then the choices of its branches."""
    numbers = [f"{value:+.2f}" for value in actions.continuous[slot][:8]]
    choices = [str(choice) for choice in actions.discrete[slot][:16]]
    return " ".join([*numbers, *choices])
