"""What an agent's sensors show: one that is chosen, or all of them in a panel of their own."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import viser

from touchline.specs import ObservationSpec
from touchline.viewer.fans import FanReader, is_ray_sensor
from touchline.viewer.insight import Insight
from touchline.viewer.sheet import (
    bars_html,
    fan_html,
    image_html,
    numbers_html,
    observation_html,
    text_html,
)

FAN_DEG = 70.0
"""Unity's default of the outermost rays' angle, which is not on the wire."""
FEW_NUMBERS = 64
"""Up to so many are also written out below their bars."""
MOST_SENSORS = 24
"""The most that are shown of an agent."""
FIGURES_PX = 600.0


class Sensors(Protocol):
    """A part of a page that shows observations."""

    def show(self, insight: Insight) -> None:
        """Show what the agent observes."""

    def set_visible(self, visible: bool) -> None:
        """Whether an agent is selected."""


class OneSensor:
    """A choice of sensors, and the numbers of the chosen one."""

    def __init__(self, gui: viser.GuiApi) -> None:
        self._sensor = gui.add_dropdown("Sensor", ("-",), visible=False)
        self._numbers = gui.add_html("", visible=False)

    def show(self, insight: Insight) -> None:
        names = tuple(
            f"{number} {sensor.name} {list(sensor.shape)}"
            for number, sensor in enumerate(insight.spec.observation_specs)
        )
        if tuple(self._sensor.options) != names:
            self._sensor.options = names
        chosen = self._sensor.value
        index = names.index(chosen) if chosen in names else 0
        self._numbers.content = observation_html(insight.obs[index])

    def set_visible(self, visible: bool) -> None:
        self._sensor.visible = self._numbers.visible = visible


class AllSensors:
    """Every sensor as a picture, a fan or bars: on a wide page where scenes have their picture."""

    def __init__(self, gui: viser.GuiApi) -> None:
        self._readers: dict[tuple[str, int], FanReader] = {}
        """Readers by behavior and number of the sensor."""
        panel = gui.add_panel()
        with panel.add_tab("Observations"):
            self._observations = gui.add_html("")
        panel.dock_left()
        panel.set_width(FIGURES_PX)
        panel.expand()

    def show(self, insight: Insight) -> None:
        sensors = insight.spec.observation_specs
        parts = [
            self._html(insight, number, sensor)
            for number, sensor in enumerate(sensors[:MOST_SENSORS])
        ]
        if len(sensors) > MOST_SENSORS:
            parts.append(text_html(f"... {len(sensors) - MOST_SENSORS} more sensors"))
        self._observations.content = "".join(parts)

    def set_visible(self, visible: bool) -> None:
        pass  # the panel stays, empty or not

    def _html(self, insight: Insight, number: int, sensor: ObservationSpec) -> str:
        """A sensor's name, and what it shows."""
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
