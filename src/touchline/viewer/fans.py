"""Ray sensors of players: what their numbers mean, found from the numbers themselves.

A player sends a ray sensor as a vector and does not say how many rays and tags it has. Of each ray
there are: one number for each tag, 1 for the tag that it met; 1 where it met nothing; and the
distance as a fraction of the ray's length. Few divisions of a vector fit this after some
observations; of those, the one with the most rays is taken.

Source: ML-Agents 3.0.0, `RayPerceptionSensor.cs` (`RayOutput.ToFloatArray`); names and order of
stacked frames: `StackingSensor.cs`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.specs import ObservationSpec

_STACKED = re.compile(r"StackingSensor_size(\d+)_")


class FanLayout(NamedTuple):
    """How a vector divides into rays."""

    frames: int
    """That are stacked; the newest is the last."""
    rays: int
    tags: int

    def newest(self, values: NDArray[Any]) -> NDArray[Any]:
        """The rays of the newest frame, [rays, tags + 2]."""
        frames = values.reshape(self.frames, self.rays, self.tags + 2)
        return np.asarray(frames[-1])


def is_ray_sensor(sensor: ObservationSpec) -> bool:
    """Whether a sensor's name says that it is one of rays; games may name theirs otherwise."""
    return len(sensor.shape) == 1 and "ray" in sensor.name.lower()


def plain_name(sensor: ObservationSpec) -> str:
    """A sensor's name without the prefix of stacked frames."""
    return _STACKED.sub("", sensor.name)


class FanReader:
    """Which layouts fit all that one sensor has sent so far."""

    def __init__(self, sensor: ObservationSpec) -> None:
        self._candidates = layouts_of(sensor)

    def read(self, values: NDArray[Any]) -> FanLayout | None:
        """The layout of these values: of those that fit, the one of the most rays."""
        fitting = [at for at in self._candidates if fits(values, at)]
        self._candidates = fitting
        return fitting[0] if fitting else None


def layouts_of(sensor: ObservationSpec) -> list[FanLayout]:
    """All layouts of so many numbers, those of the most rays first; Unity's rays are odd."""
    stacked = _STACKED.match(sensor.name)
    frames = int(stacked[1]) if stacked else 1
    size, rest = divmod(sensor.shape[0], max(frames, 1))
    if rest or frames < 1:
        return []
    return [
        FanLayout(frames, rays, size // rays - 2)
        for rays in range(size // 2, 0, -1)  # one that knows no tag has two numbers
        if rays % 2 == 1 and size % rays == 0
    ]


def fits(values: NDArray[Any], layout: FanLayout) -> bool:
    """Whether these values can be rays of this layout."""
    rays = layout.newest(values)
    marks, missed, fraction = rays[:, :-2], rays[:, -2], rays[:, -1]
    flags = rays[:, :-1]
    is_flag = (flags == 0.0) | (flags == 1.0)
    met = marks.sum(axis=1)
    # At most 1: a ray that hits what has none of the sensor's tags sets neither kind of flag.
    is_whole = bool(is_flag.all()) and bool((met + missed <= 1.0).all())
    return is_whole and bool(((fraction >= 0.0) & (fraction <= 1.0)).all())
