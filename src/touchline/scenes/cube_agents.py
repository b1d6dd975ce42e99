"""The cube agent's motion and its rigid body sensor, which several scenes share.

The branch of seven choices:

0 nothing; 1 ahead, 2 back; 3 turn right, 4 turn left; 5 step left, 6 step right (sideways at 0.75).

Source: ML-Agents 3.0.0, `PushAgentBasic.cs`, `PushAgentEscape.cs`.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import (
    ABSENT,
    BOX_COLUMNS,
    BOX_TAG,
    COS,
    HALF_X,
    HALF_Z,
    SIN,
    Floats,
    Vector,
    X,
    Y,
    Z,
)
from touchline.physics.upright.boxes import Boxes, box_gap, step_areas
from touchline.physics.upright.contacts import TOUCH_M
from touchline.scenes.random import StreamArrays, draw
from touchline.scenes.scene import ActionNames
from touchline.specs import ObservationSpec

CHOICES = 7
_NAMES = "nothing, ahead, back, turn right, turn left, step left, step right"
NAMES = ActionNames(branches=[_NAMES.split(", ")])
SIDEWAYS = 0.75
RIGID_BODY = ObservationSpec.vector(10, "RBSensor")
"""Velocity in the agent's frame (x, y, z), then a pose (x, y, z and a quaternion) relative to the
agent: its own, which never changes."""


SPAWN_M, SPAWN_HEIGHT_M = 6.25, 1.0
"""Half the 25 m floor of several scenes times their spawn margin of 0.5."""
NOWHERE_M = -100.0
"""Height of what has no place yet, so that it is in nothing's way."""


class CubeGame(NamedTuple):
    """What the rounds of A areas with one cube agent each read and write, for kernels."""

    discrete: NDArray[np.int32]
    """[A, 1, 1] stored actions."""
    reward: NDArray[np.float32]
    world: Boxes
    """The agent is body 0."""
    step_reward: float
    speed_mps: float
    turn_rad: float
    watched: int
    """The body whose touch of a goal ends the episode."""
    goals: tuple[int, int]
    """The first and the last goal, as columns of `world.gaps`: fixed boxes, then bodies."""


@compiled
def act_alone(first: int, last: int, game: CubeGame) -> None:
    """Let the one agent of each area get its reward for the step and execute its action."""
    world = game.world
    for area in range(first, last):
        game.reward[area, 0] += np.float32(game.step_reward)
        move_cube(
            game.discrete[area, 0, 0],
            0,
            game.speed_mps,
            game.turn_rad,
            world.boxes[area],
            world.yaw[area],
            world.velocity[area],
        )


@compiled
def play_alone(first: int, last: int, most: int, game: CubeGame) -> int:
    """Play rounds from the first one's physics on, until a goal is touched; returns how many."""
    for played in range(1, most + 1):
        if played > 1:
            act_alone(first, last, game)
        step_areas(first, last, game.world)
        for area in range(first, last):
            for goal in range(game.goals[0], game.goals[1] + 1):
                if game.world.gaps[area, game.watched, goal] < TOUCH_M:
                    return played
    return most


@compiled
def move_cube(
    choice: int,
    body: int,
    speed_mps: float,
    turn_rad: float,
    boxes: Floats,
    yaw: Floats,
    velocity: Floats,
) -> None:
    """Push a body of one area by its choice, or set its yaw."""
    # A turn is a teleport, as in Unity's script: it gives no spin.
    cos = boxes[body, COS]
    sin = boxes[body, SIN]
    if choice == 1 or choice == 2:
        push = speed_mps if choice == 1 else -speed_mps
        # A change of speed whatever the mass, as Unity's ForceMode.VelocityChange.
        velocity[body, 0] += push * sin
        velocity[body, 2] += push * cos
    elif choice == 5 or choice == 6:
        # At yaw 0 an agent faces along z, so right is along x.
        push = SIDEWAYS * (speed_mps if choice == 6 else -speed_mps)
        velocity[body, 0] += push * cos
        velocity[body, 2] -= push * sin
    elif choice == 3 or choice == 4:
        turn = turn_rad if choice == 3 else -turn_rad
        turn_to(yaw[body] + turn, body, boxes, yaw)


@compiled
def turn_to(angle_rad: float, body: int, boxes: Floats, yaw: Floats) -> None:
    """Set the yaw of a body of one area."""
    yaw[body] = angle_rad
    boxes[body, COS] = math.cos(angle_rad)
    boxes[body, SIN] = math.sin(angle_rad)


@makes_arrays
def new_slab(half_m: Vector) -> Floats:
    """A box of these half sizes at the height of new places, to find a free one with."""
    slab = np.zeros(BOX_COLUMNS)
    slab[HALF_X : HALF_Z + 1] = half_m
    slab[Y] = SPAWN_HEIGHT_M
    slab[COS] = 1.0
    return slab


@compiled
def throw(slab: Floats, streams: StreamArrays, area: int) -> float:
    """Move a slab to a random place; returns a random turn in rad."""
    u, v, turn, _ = draw(streams, area)
    slab[X] = SPAWN_M * (2.0 * u - 1.0)
    slab[Z] = SPAWN_M * (2.0 * v - 1.0)
    return 2.0 * math.pi * turn


@compiled
def is_free(slab: Floats, shapes: Floats) -> bool:
    """Whether a box touches none of these boxes."""
    for k in range(len(shapes)):
        if shapes[k, BOX_TAG] != ABSENT and box_gap(slab, shapes[k])[0] <= 0.0:
            return False
    return True


@compiled
def put_at(slab: Floats, shape: Floats) -> None:
    shape[X] = slab[X]
    shape[Y] = slab[Y]
    shape[Z] = slab[Z]


def observe_rigid_bodies(velocity: Floats, boxes: Floats) -> NDArray[np.float32]:
    """What `RIGID_BODY` senses: [K, 10] from rows [K, 6] and [K, 9] of K agents."""
    cos = boxes[:, COS]
    sin = boxes[:, SIN]
    body = np.zeros((len(boxes), 10), np.float32)
    body[:, 0] = velocity[:, 0] * cos - velocity[:, 2] * sin
    body[:, 1] = velocity[:, 1]
    body[:, 2] = velocity[:, 0] * sin + velocity[:, 2] * cos
    body[:, 9] = 1.0  # w of a quaternion that never turns
    return body
