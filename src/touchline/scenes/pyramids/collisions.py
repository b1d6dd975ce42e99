"""What bricks touch: each other, the agent, boxes that stand, and the planes of floor and walls.

Every function adds contacts and returns their number.
"""

import math
from typing import NamedTuple

import numpy as np

from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.ragdoll.lanes import columns, dot
from touchline.physics.shapes import HALF_X, HALF_Y, HALF_Z, Floats, Vector, X, Y, Z
from touchline.physics.tumbling.patches import Contacts, add_patch, new_contacts
from touchline.physics.tumbling.touch import (
    AXES,
    CUBOID_COLUMNS,
    HALF,
    Touching,
    new_touching,
    set_upright,
    touch,
    touch_plane,
)
from touchline.physics.upright.contacts import MU, TOUCH_M
from touchline.scenes.pyramids.agent import (
    AGENT,
    AGENT_KG,
    BODIES,
    BRICK_KG,
    BRICK_M,
    GOLD_M,
    INNER_WALLS,
    NUM_BRICKS,
    NUM_STONES,
    PLANES,
    PYRAMIDS,
    STONES_REACH_M,
    SWITCH,
)

AGENT_ROW, STATIC_ROW = NUM_BRICKS, NUM_BRICKS + 1
"""Rows of velocities after those of the bricks."""
AGENT_MU = 0.0
"""Bricks do not rub on the agent, see `docs/scenes.md`."""
_WALLS = np.array(INNER_WALLS)
NEAR_M = 1.5
"""Bricks that lie still are simulated again when an agent is this close; one step is 0.6 m at
most."""
CORNER = math.sqrt(3.0)
"""How far a cube's corner is from its center, in half edges."""


class Room(NamedTuple):
    """What a step needs besides the state: the same for all areas, one after the other."""

    cuboids: Floats
    """[STATIC_ROW + 1, 15] bricks, the agent, and the static box at hand."""
    bounds: Floats
    """[2, 3] the least and the greatest coordinates of all bricks."""
    velocity: Floats
    """[STATIC_ROW + 1, 6]"""
    moving: Floats
    """[STATIC_ROW + 1, 6] the velocity that poses move with."""
    inverse: Floats
    """[STATIC_ROW + 1, 2] inverse masses and moments of inertia."""
    contacts: Contacts
    touching: Touching


@makes_arrays
def new_room() -> Room:
    inverse = np.zeros((STATIC_ROW + 1, 2))
    for k in range(NUM_BRICKS):
        edge = GOLD_M if k == NUM_BRICKS - 1 else BRICK_M
        inverse[k, 0] = 1.0 / BRICK_KG
        # A solid cube about any axis: m a² / 6.
        inverse[k, 1] = 6.0 / (BRICK_KG * edge * edge)
    inverse[AGENT_ROW, 0] = 1.0 / AGENT_KG  # it does not turn
    return Room(
        np.zeros((STATIC_ROW + 1, CUBOID_COLUMNS)),
        np.zeros((2, 3)),
        np.zeros((STATIC_ROW + 1, 6)),
        np.zeros((STATIC_ROW + 1, 6)),
        inverse,
        new_contacts(STATIC_ROW),
        new_touching(),
    )


@compiled
def half_edge(k: int) -> float:
    return GOLD_M / 2 if k == NUM_BRICKS - 1 else BRICK_M / 2


@compiled
def set_brick(cuboid: Floats, pose: Floats, k: int) -> None:
    """Make a cuboid of the k-th brick."""
    axes = columns((pose[3], pose[4], pose[5], pose[6]))
    for d in range(3):
        cuboid[d] = pose[d]
        cuboid[HALF + d] = half_edge(k)
        cuboid[AXES + d] = axes[0][d]
        cuboid[AXES + 3 + d] = axes[1][d]
        cuboid[AXES + 6 + d] = axes[2][d]


@compiled
def touch_each_other(room: Room, n: int) -> int:
    """Add the contacts of bricks with bricks; the number of contacts."""
    cuboids = room.cuboids
    for i in range(NUM_BRICKS):
        for k in range(i + 1, NUM_BRICKS):
            reach = (half_edge(i) + half_edge(k)) * CORNER + TOUCH_M
            x = cuboids[i, 0] - cuboids[k, 0]
            y = cuboids[i, 1] - cuboids[k, 1]
            z = cuboids[i, 2] - cuboids[k, 2]
            if x * x + y * y + z * z < reach * reach:
                found = touch(cuboids[i], cuboids[k], room.touching)
                n = _add(room, n, i, k, found, MU)
    return n


@compiled
def touch_agent(room: Room, n: int) -> tuple[int, bool]:
    """Add the contacts of bricks with the agent; their number, and whether one is golden."""
    agent = room.cuboids[AGENT_ROW]
    found = 0
    for k in range(NUM_BRICKS):
        brick = room.cuboids[k]
        reach = (half_edge(k) + agent[HALF]) * CORNER + TOUCH_M
        x, y, z = brick[0] - agent[0], brick[1] - agent[1], brick[2] - agent[2]
        found = 0
        if x * x + y * y + z * z < reach * reach:
            found = touch(brick, agent, room.touching)
            n = _add(room, n, k, AGENT_ROW, found, AGENT_MU)
    # The golden brick is the last.
    return n, found > 0


@compiled
def find_bounds(room: Room) -> None:
    """Set the box around all bricks, contact distance included."""
    bounds = room.bounds
    for d in range(3):
        bounds[0, d] = np.inf
        bounds[1, d] = -np.inf
    for k in range(NUM_BRICKS):
        reach = half_edge(k) * CORNER + TOUCH_M
        for d in range(3):
            at = room.cuboids[k, d]
            bounds[0, d] = min(bounds[0, d], at - reach)
            bounds[1, d] = max(bounds[1, d], at + reach)


@compiled
def touch_boxes(room: Room, n: int, shapes: Floats) -> int:
    """Add the contacts of bricks with the switch, walls and stones; the number of contacts."""
    n = _touch_static(room, n, shapes[SWITCH], math.sqrt(2.0))
    for i in range(len(_WALLS)):
        n = _touch_static(room, n, _WALLS[i], 1.0)
    low = room.bounds[0]
    high = room.bounds[1]
    for p in range(PYRAMIDS):
        start = BODIES + p * NUM_STONES
        top = shapes[start + NUM_STONES - 1]
        if (
            low[0] < top[X] + STONES_REACH_M
            and high[0] > top[X] - STONES_REACH_M
            and low[2] < top[Z] + STONES_REACH_M
            and high[2] > top[Z] - STONES_REACH_M
        ):
            for i in range(NUM_STONES):
                n = _touch_static(room, n, shapes[start + i], 1.0)
    return n


@compiled
def _touch_static(room: Room, n: int, box: Floats, turned: float) -> int:
    """Add the contacts of bricks with a static box.

    `turned`: by how much an upright box that may be turned reaches farther.
    """
    bounds = room.bounds
    half_x = turned * box[HALF_X]
    half_z = turned * box[HALF_Z]
    # What stands reaches down to the floor, so nothing is below it.
    if (
        bounds[0, 0] > box[X] + half_x
        or bounds[1, 0] < box[X] - half_x
        or bounds[0, 2] > box[Z] + half_z
        or bounds[1, 2] < box[Z] - half_z
        or bounds[0, 1] > box[Y] + box[HALF_Y]
    ):
        return n
    static = room.cuboids[STATIC_ROW]
    set_upright(static, box)
    for k in range(NUM_BRICKS):
        brick = room.cuboids[k]
        reach = half_edge(k) * CORNER + TOUCH_M
        if (
            abs(brick[0] - box[X]) < half_x + reach
            and abs(brick[2] - box[Z]) < half_z + reach
            and abs(brick[1] - box[Y]) < box[HALF_Y] + reach
        ):
            found = touch(brick, static, room.touching)
            n = _add(room, n, k, STATIC_ROW, found, MU)
    return n


@compiled
def touch_planes(room: Room, n: int) -> int:
    """Add the contacts of bricks with the floor and the outer walls, which have no back."""
    for i in range(len(PLANES)):
        normal = PLANES[i, 0], PLANES[i, 1], PLANES[i, 2]
        offset = PLANES[i, 3]
        for k in range(NUM_BRICKS):
            brick = room.cuboids[k]
            height = dot(normal, _center(room.cuboids, k)) - offset
            if height < half_edge(k) * CORNER + TOUCH_M:
                found = touch_plane(brick, normal, offset, room.touching)
                n = _add(room, n, k, STATIC_ROW, found, MU)
    return n


@compiled
def _add(room: Room, n: int, a: int, b: int, found: int, friction: float) -> int:
    centers = _center(room.cuboids, a), _center(room.cuboids, b)
    return add_patch(
        room.contacts,
        n,
        a,
        b,
        room.touching,
        found,
        centers,
        friction,
        room.velocity,
        room.inverse,
    )


@compiled
def _center(cuboids: Floats, row: int) -> Vector:
    return cuboids[row, 0], cuboids[row, 1], cuboids[row, 2]


@compiled
def is_anything_near(shapes: Floats, pose: Floats, is_turning: bool) -> bool:
    """Whether the agent, or the switch if it turns, is near a brick."""
    for k in range(NUM_BRICKS):
        reach = NEAR_M + half_edge(k) * CORNER
        for body in (AGENT, SWITCH):
            if body == SWITCH and not is_turning:
                continue
            me = shapes[body]
            far = reach + me[HALF_X] * math.sqrt(2.0)  # upright: it turns about y only
            if (
                abs(me[Y] - pose[k, Y]) < far + me[HALF_Y]
                and abs(me[X] - pose[k, X]) < far
                and abs(me[Z] - pose[k, Z]) < far
            ):
                return True
    return False
