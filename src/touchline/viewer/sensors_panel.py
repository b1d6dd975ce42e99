"""What an agent's sensors show: one that is chosen, or all of them in a panel of their own."""

from __future__ import annotations

import numpy as np
import viser

from touchline.viewer.fans import FanLayout, FanReader, is_ray_sensor, plain_name
from touchline.viewer.insight import Insight
from touchline.viewer.sheet import (
    bars_html,
    cards_html,
    fan_html,
    image_html,
    numbers_html,
    tags_html,
    text_html,
)
from touchline.viewer.simulation import Simulation

FAN_DEG = 70.0
"""Unity's default of the outermost rays' angle, which is not on the wire."""
FEW_NUMBERS = 64
"""Up to so many are also written out below their bars."""
MOST_SENSORS = 24
"""The most that are shown of an agent."""


def sensor_names(insight: Insight) -> tuple[str, ...]:
    """The names of what an agent observes, with their shapes."""
    sensors = insight.spec.observation_specs[: len(insight.obs)]
    return tuple(
        f"{number} {plain_name(sensor) or 'without a name'} {list(sensor.shape)}"
        for number, sensor in enumerate(sensors)
    )


Readers = dict[tuple[str, int], FanReader]
"""What is known of the layouts of ray sensors, by behavior and number of the sensor."""


def _layout(readers: Readers, insight: Insight, number: int) -> FanLayout | None:
    """How an observation divides into rays; None where it has none."""
    sensor = insight.spec.observation_specs[number]
    if not is_ray_sensor(sensor):
        return None
    key = insight.behavior, number
    reader = readers.setdefault(key, FanReader(sensor))
    return reader.read(np.asarray(insight.obs[number]))


class OneSensor:
    """A choice of sensors, and what the chosen one observes, in a scene that draws rays itself."""

    def __init__(self, gui: viser.GuiApi, simulation: Simulation) -> None:
        self._simulation = simulation
        self._readers: Readers = {}
        self._sensor = gui.add_dropdown("Sensor", ("-",), visible=False)
        self._numbers = gui.add_checkbox("Numbers", False, visible=False)
        self._html = gui.add_html("", visible=False)

    def show(self, insight: Insight) -> None:
        names = sensor_names(insight)
        if tuple(self._sensor.options) != names:
            self._sensor.options = names
        chosen = self._sensor.value
        index = names.index(chosen) if chosen in names else 0
        values, tags = np.asarray(insight.obs[index]), self._simulation.seen_tags
        if self._numbers.value:
            self._html.content = numbers_html(values)
        elif (layout := _layout(self._readers, insight, index)) is not None:
            about = f"{layout.rays} rays, {layout.tags} tags, drawn in the scene:"
            self._html.content = text_html(about) + tags_html(tags)
        else:
            drawn = image_html(values) if values.ndim == 3 else bars_html(values)
            is_grid = values.ndim == 3 and len(tags) == len(values)
            self._html.content = drawn + (tags_html(tags) if is_grid else "")

    def set_visible(self, visible: bool) -> None:
        for handle in (self._sensor, self._numbers, self._html):
            handle.visible = visible


class AllSensors:
    """Every sensor as a picture, a fan or bars: on a wide page where scenes have their picture."""

    def __init__(self, gui: viser.GuiApi) -> None:
        self._readers: Readers = {}
        panel = gui.add_panel()
        with panel.add_tab("Observations"):
            self._observations = gui.add_html("")
        panel.dock_left()
        panel.expand()

    def show(self, insight: Insight) -> None:
        names = sensor_names(insight)
        cards = [
            (name, self._html(insight, number))
            for number, name in enumerate(names[:MOST_SENSORS])
        ]
        if len(names) > MOST_SENSORS:
            cards.append((f"... {len(names) - MOST_SENSORS} more sensors", ""))
        self._observations.content = cards_html(cards)

    def set_visible(self, visible: bool) -> None:
        """The panel stays, empty or not."""

    def _html(self, insight: Insight, number: int) -> str:
        values = np.asarray(insight.obs[number])
        if values.ndim == 3:
            return image_html(values)
        layout = _layout(self._readers, insight, number)
        if layout is not None:
            about = (
                f"{layout.rays} rays, {layout.tags} tags; the wire has no angles, drawn over "
                f"±{FAN_DEG:.0f}°"
            )
            return fan_html(layout.newest(values), FAN_DEG) + text_html(about)
        written = numbers_html(values) if values.size <= FEW_NUMBERS else ""
        return bars_html(values) + written
