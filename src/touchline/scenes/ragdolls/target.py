"""The cube that a ragdoll is to reach: it falls to the ground, and moves away when touched.

In Unity it is a free body; here it stays level and is watched by distance, which no policy notices:
a part that comes near enough to push it makes it move in that very step.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import (
    columns,
    multiply,
    plus,
    rotate,
    times,
    turn_of,
    vector_of,
)
from touchline.physics.ragdoll.model import BOX
from touchline.physics.ragdoll.world import DT_S, State
from touchline.physics.shapes import Floats, Vector
from touchline.scenes.random import StreamArrays, draw

_CONTACT_M = 0.02
"""Two contact offsets of Unity's default."""
_SAMPLES = 8


class Target(NamedTuple):
    """The cubes of N areas."""

    position: Floats
    """[N, 3] of their centers"""
    fall: Floats
    """[N] downward speed, m/s"""


class TargetPlace(NamedTuple):
    """Where cubes appear."""

    edge: float
    radius: float
    """It appears at most so far from the place below, whose x is 0."""
    y: float
    z: float
    ground_top: float


@compiled
def place_target(
    target: Target, area: int, place: TargetPlace, streams: StreamArrays
) -> None:
    """A new place: that of a point in a ball, at the height of its center."""
    # Points of the cube around the ball are drawn until one is inside: evenly spread over it,
    # like Unity's Random.insideUnitSphere.
    while True:
        a, b, c, _ = draw(streams, area)
        x = 2.0 * a - 1.0
        y = 2.0 * b - 1.0
        z = 2.0 * c - 1.0
        if x * x + y * y + z * z <= 1.0:
            break
    target.position[area, 0] = place.radius * x
    target.position[area, 1] = place.y
    target.position[area, 2] = place.z + place.radius * z
    target.fall[area] = 0.0


@compiled
def move_target(
    area: int,
    parts: Any,
    reactive: NDArray[np.bool_],
    state: State,
    target: Target,
    place: TargetPlace,
    streams: StreamArrays,
) -> None:
    """Let an area's cube fall, and replace it when a part touches it."""
    half = 0.5 * place.edge
    lowest = place.ground_top + half
    if target.position[area, 1] > lowest:
        target.fall[area] += state.gravity[area] * DT_S
        height = target.position[area, 1] - target.fall[area] * DT_S
        target.position[area, 1] = max(height, lowest)
    for i in range(len(reactive)):
        if reactive[i] and _touches(parts[i], i, state, area, target, half):
            place_target(target, area, place, streams)
            break


@compiled
def _touches(
    part: Any, index: int, state: State, area: int, target: Target, half: float
) -> bool:
    """Whether a part is within reach of the cube, a box counting as a capsule in it."""
    position = state.position[area, index]
    rotation = state.rotation[area, index]
    q = turn_of(rotation)
    x, y, z = rotate(q, vector_of(part.center))
    dx = position[0] + x - target.position[area, 0]
    dy = position[1] + y - target.position[area, 1]
    dz = position[2] + z - target.position[area, 2]
    # 1.8 is a little more than √3: half the cube's diagonal.
    reach = part.bound + 1.8 * half + _CONTACT_M
    # Written so that a body of NaN touches nothing.
    if not dx * dx + dy * dy + dz * dz < reach * reach:
        return False
    axes = columns(multiply(q, turn_of(part.turn)))
    if part.kind == BOX:  # the Walker's foot: long along z, flat along y
        radius = part.half[1]
        axis = axes[2]
        length = part.half[2] - part.half[1]
    else:
        radius = part.half[0]
        axis = axes[0]
        length = part.half[1]
    nearest = np.inf
    # The nearest of 17 points of the axis: exact enough for a cube that vanishes at a touch.
    for i in range(-_SAMPLES, _SAMPLES + 1):
        at = length * i / _SAMPLES
        point = plus((dx, dy, dz), times(axis, at))
        nearest = min(nearest, _distance(point, half))
    touches: bool = nearest - radius <= _CONTACT_M
    return touches


@compiled
def _distance(point: Vector, half: float) -> float:
    """From a point to a cube at the origin."""
    x = max(abs(point[0]) - half, 0.0)
    y = max(abs(point[1]) - half, 0.0)
    z = max(abs(point[2]) - half, 0.0)
    return math.sqrt(x * x + y * y + z * z)
