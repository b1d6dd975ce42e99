"""What a ragdoll walks for: its goal speed, its orientation cube, and the cube to reach.

The cube to reach falls to the ground, and moves away when touched. In Unity it is a free body; here
it stays level and is watched by distance, which no policy notices: a part that comes near enough to
push it makes it move in that very step.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import (
    columns,
    dot,
    minus,
    multiply,
    plus,
    rotate,
    times,
)
from touchline.physics.ragdoll.model import BOX, center_of, collider_turn
from touchline.physics.ragdoll.world import DT_S, State
from touchline.physics.shapes import Floats, Vector
from touchline.scenes.random import StreamArrays, draw
from touchline.sensors.body import (
    cube_rotation,
    forward_of,
    in_cube,
    mean_velocity,
    shortest_turn,
    turn_of,
    vector_of,
    write,
    write_turn,
)

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


class Walk(NamedTuple):
    """What a walking agent has in addition to its body: N agents."""

    cube: Floats
    """[N, 3] the orientation cube's origin"""
    ahead: Floats
    """[N, 2] x and z of its level z axis"""
    goal_speed: Floats
    """[N] m/s"""
    strength: Floats
    """[N, D] of each drive, 0 to 1"""
    target: Target
    parents: NDArray[np.int64]
    """[B] the part that each part hangs on; the root is its own"""
    drive_of: NDArray[np.int64]
    """[B] the drive of each part's own joint, -1 where it has none"""
    ended: NDArray[np.int64]
    """[N] FELL, DROPPED, LOST or 0: room for a round"""


@compiled
def turn_cube(state: State, walk: Walk, agent: int) -> None:
    """Point an orientation cube from where it was to the target, then move it to the root."""
    dx = walk.target.position[agent, 0] - walk.cube[agent, 0]
    dz = walk.target.position[agent, 2] - walk.cube[agent, 2]
    length = math.sqrt(dx * dx + dz * dz)
    # Right above or below its target, the cube faces along the world's z axis.
    walk.ahead[agent, 0] = dx / length if length > 0.0 else 0.0
    walk.ahead[agent, 1] = dz / length if length > 0.0 else 1.0
    # In this order, as OrientationCubeController.cs: the direction is that from the old place.
    walk.cube[agent] = vector_of(state.position[agent, 0])


@compiled
def match_speed(velocity: Vector, walk: Walk, agent: int) -> float:
    """(1 − (d / s)²)², d the difference from the goal velocity, s the goal speed: 0 to 1."""
    speed = walk.goal_speed[agent]
    # The goal velocity is level, so all of the vertical velocity counts as difference.
    dx = velocity[0] - speed * walk.ahead[agent, 0]
    dz = velocity[2] - speed * walk.ahead[agent, 1]
    apart = math.sqrt(dx * dx + velocity[1] * velocity[1] + dz * dz)
    share = min(apart / speed, 1.0)
    match: float = 1.0 - share * share
    return match * match


@compiled
def angle_deg(state: State, walk: Walk, agent: int) -> float:
    """Between the orientation cube and the root, as Unity's `Quaternion.Angle`."""
    cube = cube_rotation((walk.ahead[agent, 0], walk.ahead[agent, 1]))
    body = state.rotation[agent, 0]
    product = 0.0
    for k in range(4):
        product += cube[k] * body[k]
    # Unity calls rotations equal, and the angle 0, beyond this.
    product = min(abs(product), 1.0)
    if product > 0.999999:
        return 0.0
    half = math.acos(product)
    return math.degrees(2.0 * half)


@compiled
def observe_speeds(
    agent: int, state: State, walk: Walk, parts: int, out: NDArray[np.float32]
) -> int:
    """Write how far the mean velocity of the first `parts` is from the goal's, then both.

    Returns the next index.
    """
    ahead = (walk.ahead[agent, 0], walk.ahead[agent, 1])
    velocity = mean_velocity(state.velocity[agent], parts)
    goal = times((ahead[0], 0.0, ahead[1]), walk.goal_speed[agent])
    apart = minus(goal, velocity)
    out[0] = math.sqrt(dot(apart, apart))
    at = write(out, 1, in_cube(ahead, velocity))
    return write(out, at, in_cube(ahead, goal))


@compiled
def observe_target(
    agent: int,
    facing: tuple[int, ...],
    state: State,
    walk: Walk,
    at: int,
    out: NDArray[np.float32],
) -> int:
    """Write the shortest rotations from some parts' z axes to the orientation cube's, then the
    target's position in the cube; returns the next index.
    """
    ahead = (walk.ahead[agent, 0], walk.ahead[agent, 1])
    direction = (ahead[0], 0.0, ahead[1])
    for part in facing:
        forward = forward_of(turn_of(state.rotation[agent, part]))
        at = write_turn(out, at, shortest_turn(forward, direction))
    # From the cube's origin, which is where the root was when the last reward was computed.
    cube = vector_of(walk.cube[agent])
    target = minus(vector_of(walk.target.position[agent]), cube)
    return write(out, at, in_cube(ahead, target))


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
    q = (rotation[0], rotation[1], rotation[2], rotation[3])
    x, y, z = rotate(q, center_of(part))
    dx = position[0] + x - target.position[area, 0]
    dy = position[1] + y - target.position[area, 1]
    dz = position[2] + z - target.position[area, 2]
    # 1.8 is a little more than √3: half the cube's diagonal.
    reach = part.bound + 1.8 * half + _CONTACT_M
    # Written so that a body of NaN touches nothing.
    if not dx * dx + dy * dy + dz * dz < reach * reach:
        return False
    axes = columns(multiply(q, collider_turn(part)))
    if part.kind == BOX:  # the Walker's foot: long along z, flat along y
        radius = part.half_y
        axis = axes[2]
        length = part.half_z - part.half_y
    else:
        radius = part.half_x
        axis = axes[0]
        length = part.half_y
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
