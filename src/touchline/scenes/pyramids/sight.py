"""What the agent's three fans of rays hit: upright boxes first, then bricks that are nearer."""

import functools
import math

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import inlined, makes_arrays
from touchline.physics.ragdoll.lanes import dot
from touchline.physics.shapes import Floats, Vector
from touchline.physics.sweeps import sweep_box
from touchline.physics.tumbling.touch import AXES, CUBOID_COLUMNS, HALF
from touchline.scenes.pyramids.agent import AGENT, BLOCK, GOAL, NUM_BRICKS, TAGS
from touchline.scenes.pyramids.collisions import set_brick
from touchline.sensors.rays import RayFan, RaySensor, View


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


@makes_arrays
def add_bricks(
    first: int,
    last: int,
    agents: NDArray[np.intp],
    view: View,
    on: NDArray[np.bool_],
    pose: Floats,
    directions: Floats,
    reach_m: float,
    radius_m: float,
    frame: NDArray[np.float32],
) -> None:
    """Replace in `frame`, which a `RaySensor` has filled, what bricks [A, NUM_BRICKS, 7] hide."""
    brick = np.empty(CUBOID_COLUMNS)
    width = frame.shape[1] // len(directions)
    for row in range(first, last):
        a = agents[row]
        if not on[a]:
            continue
        eye = view.bodies[a, AGENT]
        cos = math.cos(view.yaw[a, AGENT])
        sin = math.sin(view.yaw[a, AGENT])
        for k in range(NUM_BRICKS):
            set_brick(brick, pose[a, k], k)
            half = brick[HALF]
            apart = (eye[0] - brick[0], eye[1] - brick[1], eye[2] - brick[2])
            # The ball around the brick, grown by the ray's.
            around = half * math.sqrt(3.0) + radius_m
            square = dot(apart, apart)
            if square > (reach_m + around) * (reach_m + around):
                continue
            start = _in_frame(brick, apart)
            if _outside(start, half) <= radius_m + 1e-5:
                continue  # overlapped at the start: not hit
            for ray in range(len(directions)):
                right, up, ahead = directions[ray]
                way = (right * cos + ahead * sin, up, ahead * cos - right * sin)
                along = -dot(way, apart)
                if along < 0.0 or square - along * along > around * around:
                    continue  # it passes the brick's ball
                at = ray * width
                # The last number of a ray is the share of its length before the hit.
                nearest = frame[row, at + width - 1] * reach_m
                if along - around > nearest:
                    continue
                toward = _in_frame(brick, way)
                t = sweep_box(start, toward, (half, half, half), radius_m)
                if t < nearest:
                    frame[row, at : at + width] = 0.0
                    frame[row, at + (GOAL if k == NUM_BRICKS - 1 else BLOCK)] = 1.0
                    frame[row, at + width - 1] = t / reach_m


@inlined
def _in_frame(cuboid: Floats, v: Vector) -> Vector:
    """A vector along the cuboid's three axes."""
    return (
        cuboid[AXES] * v[0] + cuboid[AXES + 1] * v[1] + cuboid[AXES + 2] * v[2],
        cuboid[AXES + 3] * v[0] + cuboid[AXES + 4] * v[1] + cuboid[AXES + 5] * v[2],
        cuboid[AXES + 6] * v[0] + cuboid[AXES + 7] * v[1] + cuboid[AXES + 8] * v[2],
    )


@inlined
def _outside(point: Vector, half: float) -> float:
    """How far a point is from a cube at the origin."""
    x = max(abs(point[0]) - half, 0.0)
    y = max(abs(point[1]) - half, 0.0)
    z = max(abs(point[2]) - half, 0.0)
    return math.sqrt(x * x + y * y + z * z)
