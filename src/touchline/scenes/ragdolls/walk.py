"""What a ragdoll walks for: its orientation cube, its goal speed, and the cube to reach."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled
from touchline.physics.ragdoll.lanes import (
    dot,
    minus,
    times,
    turn_of,
    vector_of,
)
from touchline.physics.ragdoll.world import State
from touchline.physics.shapes import Floats, Vector
from touchline.scenes.ragdolls.target import Target
from touchline.sensors.body import (
    cube_rotation,
    forward_of,
    in_cube,
    mean_velocity,
    shortest_turn,
    write,
    write_turn,
)


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
    """Write how far the first parts' mean velocity is from the goal's, then both; next index."""
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
