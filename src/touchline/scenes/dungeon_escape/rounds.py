"""What stands in an area, where agents and dragon start, their rounds, and what touched what."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import (
    ABSENT,
    BOX_TAG,
    COS,
    HALF_X,
    HALF_Z,
    SIN,
    Floats,
    X,
    Y,
    Z,
    box,
    boxes,
    pillar,
    rounds,
)
from touchline.physics.upright.boxes import Body, Boxes, box_gap, step_areas
from touchline.physics.upright.contacts import MU, TOUCH_M
from touchline.physics.world import DT_S
from touchline.scenes.cube_agents import (
    NOWHERE_M,
    is_free,
    move_cube,
    new_slab,
    put_at,
    throw,
    turn_to,
)
from touchline.scenes.random import StreamArrays, draw

AGENTS = 3
AGENT_KG, AGENT_DRAG = 10.0, 4.0

TAGS = ["wall", "agent", "dragon", "key", "lock", "portal"]
WALL, AGENT_TAG, DRAGON_TAG, KEY_TAG, LOCK_TAG, PORTAL_TAG = range(6)
COLUMNS_M = ((-4.5, -4.0), (-4.5, 4.0), (4.5, -4.0), (4.5, 4.0))
COLUMN_RADIUS_M, COLUMN_HEIGHT_M = 0.718, 3.45
FLOOR = 0
DOOR = 5
PORTAL = 6
FIRST_COLUMN = 7
FIXED = boxes(
    box((0.0, -0.5, 0.0), (25.0, 1.0, 25.0)),
    box((12.75, 2.0, 0.0), (0.5, 5.0, 26.0), WALL),
    box((-12.75, 2.0, 0.0), (0.5, 5.0, 26.0), WALL),
    box((0.0, 2.0, 12.75), (26.0, 5.0, 0.5), WALL),
    box((0.0, 2.0, -12.75), (26.0, 5.0, 0.5), WALL),
    box((0.015, 1.385, 12.6), (3.0, 2.6, 1.07), LOCK_TAG),
    box((11.83, 1.83, -11.77), (4.69, 4.73, 1.77), PORTAL_TAG, -45.0),
    *(box((x, 0.1845, z), (1.695, 0.369, 1.695), WALL) for x, z in COLUMNS_M),
)
PILLARS = rounds(
    *(
        pillar((x, COLUMN_HEIGHT_M / 2, z), COLUMN_RADIUS_M, COLUMN_HEIGHT_M, WALL)
        for x, z in COLUMNS_M
    )
)
"""Only rays of agents in the air hit these: on the ground they hit the wider foot first."""
COLUMN_MU = 0.5 * MU
"""Columns are frictionless, agents are not; the average counts."""

_NOWHERE = (0.0, NOWHERE_M, 0.0)
BODIES = [
    Body(box(_NOWHERE, (1.0, 1.0, 1.0), AGENT_TAG), AGENT_KG, AGENT_DRAG)
] * AGENTS
DRAGON, CARRIED_KEY, KEY, TOMB_FOOT, TOMB_STONE = range(AGENTS, AGENTS + 5)
"""The boxes after the agents. The key is carried by the dragon, then lies on the ground."""
PLACED = [
    box(_NOWHERE, (1.5, 1.5, 1.5), ABSENT),  # dragon
    box(_NOWHERE, (1.21, 0.46, 0.18), ABSENT),  # carried key
    box(_NOWHERE, (1.21, 0.46, 0.18), ABSENT),  # key
    box(_NOWHERE, (1.21, 0.44, 0.52), ABSENT),  # foot of the tombstone
    box(_NOWHERE, (1.05, 1.42, 0.33), ABSENT),  # tombstone
]
PORTAL_M = (11.58, -11.59)
"""x and z of where the dragon walks."""
CARRIED_KEY_Y_M, KEY_Y_M = 0.38, 0.75
KEY_AHEAD_M, KEY_LEFT_M = 0.94, 0.19
"""Place of the key that the dragon carries, relative to it."""

CLEAR_M = (2.5, 0.01, 2.5)
"""Half extents of the box around a new place that must be free."""
PATIENCE = 1000
"""After this many tries old places no longer count; after twice as many, nothing does."""
DRAGON_START_M = (0.0, 0.75, 8.0)
DRAGON_SPEED_MPS = (1.0, 7.0)


@makes_arrays
def place(
    areas: NDArray[np.intp],
    streams: StreamArrays,
    world: Boxes,
    dragon_speed_mps: Floats,
) -> None:
    """Put agents where a box around them is free, then the dragon on one side, key in hand."""
    # What stands there now is in the way, an agent's old self too. Little of the hall is free
    # between its columns, and old places may cover all of it: there Unity would search forever;
    # here they no longer count after many tries.
    slab = new_slab(CLEAR_M)
    low, high = DRAGON_SPEED_MPS
    for area in areas:
        shapes = world.boxes[area]
        world.velocity[area] = 0.0
        for i in range(AGENTS):
            turn = 0.0
            for tries in range(2 * PATIENCE):
                turn = throw(slab, streams, area)
                agents_in_the_way = AGENTS if tries < PATIENCE else i
                if (
                    is_free(slab, world.fixed)
                    and is_free(slab, shapes[:agents_in_the_way])
                    and is_free(slab, shapes[AGENTS:])
                    and _is_between_columns(slab)
                ):
                    break
            put_at(slab, shapes[i])
            shapes[i, BOX_TAG] = AGENT_TAG
            turn_to(turn, i, shapes, world.yaw[area])
        u, v, _, _ = draw(streams, area)
        dragon_speed_mps[area] = low + (high - low) * u
        _place_dragon(shapes, int(4.0 * v))
    # Without a step it only turns to the portal, and its key with it.
    for area in areas:
        step_dragon(world.boxes[area], 0.0)


@compiled
def _place_dragon(shapes: Floats, quarters: int) -> None:
    """Put the dragon at its start, turned about the middle by a number of quarter turns."""
    # In Unity the start is fixed in the world, and the platform is turned under it.
    x = DRAGON_START_M[0]
    z = DRAGON_START_M[2]
    for _ in range(quarters):
        x, z = z, -x
    dragon = shapes[DRAGON]
    dragon[X] = x
    dragon[Y] = DRAGON_START_M[1]
    dragon[Z] = z
    dragon[COS] = 1.0
    dragon[SIN] = 0.0
    dragon[BOX_TAG] = DRAGON_TAG
    shapes[CARRIED_KEY, BOX_TAG] = KEY_TAG
    shapes[CARRIED_KEY, Y] = NOWHERE_M
    for part in (KEY, TOMB_FOOT, TOMB_STONE):
        shapes[part, BOX_TAG] = ABSENT


@compiled
def _is_between_columns(slab: Floats) -> bool:
    for x, z in COLUMNS_M:
        dx = max(abs(slab[X] - x) - slab[HALF_X], 0.0)
        dz = max(abs(slab[Z] - z) - slab[HALF_Z], 0.0)
        if dx * dx + dz * dz <= COLUMN_RADIUS_M**2:
            return False
    return True


@compiled
def step_dragon(shapes: Floats, speed_mps: float) -> None:
    """One step of one area's dragon towards the portal, whatever is in the way."""
    dragon = shapes[DRAGON]
    key = shapes[CARRIED_KEY]
    dx = PORTAL_M[0] - dragon[X]
    dz = PORTAL_M[1] - dragon[Z]
    length = math.sqrt(dx * dx + dz * dz)
    sin, cos = dx / length, dz / length
    dragon[COS] = cos
    dragon[SIN] = sin
    dragon[X] += sin * speed_mps * DT_S
    dragon[Z] += cos * speed_mps * DT_S
    key[COS] = cos
    key[SIN] = sin
    # The key hangs on the dragon and turns with it.
    key[X] = dragon[X] + KEY_AHEAD_M * sin - KEY_LEFT_M * cos
    key[Y] = CARRIED_KEY_Y_M
    key[Z] = dragon[Z] + KEY_AHEAD_M * cos + KEY_LEFT_M * sin


RUN_SPEED_MPS = 3.0
TURN_RAD = math.radians(200.0) * DT_S


class Halls(NamedTuple):
    """What the rounds of A areas read and write, for kernels."""

    discrete: NDArray[np.int32]
    """[A, AGENTS, 1] stored actions."""
    enabled: NDArray[np.bool_]
    """[A, AGENTS] whether the agent is alive."""
    has_key: NDArray[np.bool_]
    """[A, AGENTS]"""
    dragon_speed_mps: Floats
    """[A]"""
    world: Boxes
    at_dragon: NDArray[np.bool_]
    """[A, AGENTS], likewise all that follow: what the agent touched in the last round."""
    at_key: NDArray[np.bool_]
    at_portal: NDArray[np.bool_]
    at_door: NDArray[np.bool_]
    opens: NDArray[np.bool_]
    """Whether it came to the door in that round, and has the key."""
    escaped: NDArray[np.bool_]
    """[A] whether the dragon was at the portal before that round."""


@compiled
def play_rounds(first: int, last: int, most: int, halls: Halls) -> int:
    """Play rounds until a touch has consequences; how many."""
    for played in range(1, most + 1):
        for area in range(first, last):
            _act(area, halls)
            _find_triggers(area, halls)
        step_areas(first, last, halls.world)
        any_touch = False
        for area in range(first, last):
            if halls.world.boxes[area, DRAGON, BOX_TAG] != ABSENT:
                step_dragon(halls.world.boxes[area], halls.dragon_speed_mps[area])
            any_touch |= _find_touches(area, halls)
        if any_touch:
            return played
    return most


@compiled
def _act(area: int, halls: Halls) -> None:
    """Let every agent that is alive execute its action."""
    world = halls.world
    for i in range(AGENTS):
        if halls.enabled[area, i]:
            move_cube(
                halls.discrete[area, i, 0],
                i,
                RUN_SPEED_MPS,
                TURN_RAD,
                world.boxes[area],
                world.yaw[area],
                world.velocity[area],
            )


@compiled
def _find_triggers(area: int, halls: Halls) -> None:
    """Mark agents in the key's trigger, and a dragon at the portal."""
    # Triggers act on the places before a step.
    shapes = halls.world.boxes[area]
    portal = halls.world.fixed[PORTAL]
    key = shapes[KEY]
    dragon = shapes[DRAGON]
    for i in range(AGENTS):
        both_present = key[BOX_TAG] != ABSENT and shapes[i, BOX_TAG] != ABSENT
        halls.at_key[area, i] = both_present and box_gap(shapes[i], key)[0] < 0.0
    halls.escaped[area] = (
        dragon[BOX_TAG] != ABSENT and box_gap(dragon, portal)[0] < TOUCH_M
    )


@compiled
def _find_touches(area: int, halls: Halls) -> bool:
    """Mark what the agents touched in the step; whether anything has consequences."""
    first_box = len(halls.world.fixed)
    has_consequences = halls.escaped[area]
    for i in range(AGENTS):
        gaps = halls.world.gaps[area, i]
        was_at_door = halls.at_door[area, i]
        is_at_door = gaps[DOOR] < TOUCH_M
        halls.at_door[area, i] = is_at_door
        halls.opens[area, i] = is_at_door and not was_at_door and halls.has_key[area, i]
        halls.at_dragon[area, i] = gaps[first_box + DRAGON] < TOUCH_M
        halls.at_portal[area, i] = gaps[PORTAL] < TOUCH_M
        has_consequences |= halls.opens[area, i] or halls.at_key[area, i]
        has_consequences |= halls.at_dragon[area, i] or halls.at_portal[area, i]
    return bool(has_consequences)
