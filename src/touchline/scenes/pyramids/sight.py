"""What the agent's three fans of rays hit: upright boxes first, then bricks that are nearer."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import makes_arrays
from touchline.physics.shapes import Floats
from touchline.physics.sweeps import sweep_box
from touchline.scenes.pyramids.gold import frame_of
from touchline.scenes.pyramids.layout import BLOCK, GOAL, GOLD_M, NUM_BRICKS, TAGS
from touchline.scenes.pyramids.model import AGENT_JOINTS
from touchline.sensors.rays import RayFan, RaySensor


def _fan(max_degrees: float, rise_m: float) -> RaySensor:
    fan = RayFan(
        rays_per_direction=3, max_degrees=max_degrees, length_m=35.0, end_m=rise_m
    )
    return RaySensor(TAGS, TAGS, fan)


SENSORS = {
    "RayPerceptionSensor": _fan(70.0, 0.0),
    "RayPerceptionSensor1": _fan(65.0, 5.0),
    "RayPerceptionSensor2": _fan(75.0, 10.0),
}
RAYS = functools.reduce(RaySensor.joined_with, SENSORS.values())
"""All of them, for drawing."""


class Fan(NamedTuple):
    """The geometry of one sensor, for kernels."""

    directions: Floats
    """[rays, (right, up, ahead)] unit vectors in the agent's frame."""
    reach_m: float
    radius_m: float


def fan_of(sensor: RaySensor) -> Fan:
    return Fan(sensor.directions, sensor.reach_m, sensor.radius_m)


@makes_arrays
def add_bricks(
    first: int,
    last: int,
    agents: NDArray[np.intp],
    eyes: Floats,
    on: NDArray[np.bool_],
    qpos: Floats,
    fan: Fan,
    frame: NDArray[np.float32],
) -> None:
    """Replace in `frame`, which a sensor has filled, what bricks hide.

    `eyes` [A, (x, y, z, yaw)] are in Unity's frame, bricks in MuJoCo's.
    """
    axes = np.empty((3, 3))
    local = np.empty(3)
    way = np.empty(3)
    width = frame.shape[1] // len(fan.directions)
    for row in range(first, last):
        a = agents[row]
        if not on[a]:
            continue
        cos = math.cos(eyes[a, 3])
        sin = math.sin(eyes[a, 3])
        for k in range(NUM_BRICKS):
            brick = qpos[a, AGENT_JOINTS + 7 * k : AGENT_JOINTS + 7 * k + 7]
            half = GOLD_M / 2 if k == NUM_BRICKS - 1 else 0.5
            dx, dy = eyes[a, 0] - brick[0], eyes[a, 2] - brick[1]
            dz = eyes[a, 1] - brick[2]
            # The ball around the brick, grown by the ray's.
            around = half * math.sqrt(3.0) + fan.radius_m
            square = dx * dx + dy * dy + dz * dz
            if square > (fan.reach_m + around) * (fan.reach_m + around):
                continue
            frame_of(brick[3:], axes)
            outside = 0.0
            for d in range(3):
                local[d] = axes[0, d] * dx + axes[1, d] * dy + axes[2, d] * dz
                over = max(abs(local[d]) - half, 0.0)
                outside += over * over
            if math.sqrt(outside) <= fan.radius_m + 1e-5:
                continue  # overlapped at the start: not hit
            for ray in range(len(fan.directions)):
                right, up, ahead = fan.directions[ray]
                rx, ry = right * cos + ahead * sin, ahead * cos - right * sin
                along = -(rx * dx + ry * dy + up * dz)
                if along < 0.0 or square - along * along > around * around:
                    continue  # it passes the brick's ball
                for d in range(3):
                    way[d] = axes[0, d] * rx + axes[1, d] * ry + axes[2, d] * up
                at = ray * width
                start, toward = (local[0], local[1], local[2]), (way[0], way[1], way[2])
                t = sweep_box(start, toward, (half, half, half), fan.radius_m)
                # The last number of a ray is the share of its length before the hit.
                if t < frame[row, at + width - 1] * fan.reach_m:
                    frame[row, at : at + width] = 0.0
                    frame[row, at + (GOAL if k == NUM_BRICKS - 1 else BLOCK)] = 1.0
                    frame[row, at + width - 1] = t / fan.reach_m
