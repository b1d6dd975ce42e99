"""Where agents and dragon start.

Source: `DungeonEscapeEnvController.cs`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from touchline.physics.kernels import compiled, makes_arrays
from touchline.physics.shapes import (
    ABSENT,
    BOX_COLUMNS,
    BOX_TAG,
    COS,
    HALF_X,
    HALF_Y,
    HALF_Z,
    SIN,
    Floats,
    X,
    Y,
    Z,
)
from touchline.physics.upright.boxes import Boxes, box_gap
from touchline.scenes.cube_agents import turn_to
from touchline.scenes.dungeon_escape.dragon import step_dragon
from touchline.scenes.dungeon_escape.hall import (
    AGENT_TAG,
    AGENTS,
    CARRIED_KEY,
    COLUMN_RADIUS_M,
    COLUMNS_M,
    DRAGON,
    DRAGON_TAG,
    KEY,
    KEY_TAG,
    NOWHERE_M,
    TOMB_FOOT,
    TOMB_STONE,
)
from touchline.scenes.random import StreamArrays, draw

SPAWN_M, SPAWN_HEIGHT_M = 6.25, 1.0
"""Half the 25 m floor times the spawn margin of 0.5."""
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
    slab = np.zeros(BOX_COLUMNS)
    slab[HALF_X], slab[HALF_Y], slab[HALF_Z] = CLEAR_M
    slab[Y] = SPAWN_HEIGHT_M
    slab[COS] = 1.0
    low, high = DRAGON_SPEED_MPS
    for area in areas:
        shapes = world.boxes[area]
        yaw = world.yaw[area]
        world.velocity[area] = 0.0
        for i in range(AGENTS):
            turn = 0.0
            for tries in range(2 * PATIENCE):
                u, v, turn, _ = draw(streams, area)
                slab[X] = SPAWN_M * (2.0 * u - 1.0)
                slab[Z] = SPAWN_M * (2.0 * v - 1.0)
                agents_in_the_way = AGENTS if tries < PATIENCE else i
                if _is_free(slab, world.fixed, shapes, agents_in_the_way):
                    break
            agent = shapes[i]
            agent[X] = slab[X]
            agent[Y] = SPAWN_HEIGHT_M
            agent[Z] = slab[Z]
            agent[BOX_TAG] = AGENT_TAG
            turn_to(2.0 * math.pi * turn, i, shapes, yaw)
        u, v, _, _ = draw(streams, area)
        dragon_speed_mps[area] = low + (high - low) * u
        _place_dragon(shapes, int(4.0 * v))
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
def _is_free(slab: Floats, fixed: Floats, shapes: Floats, agents: int) -> bool:
    """Whether a box touches nothing; of the agents, only the first `agents` count."""
    for k in range(len(fixed)):
        if box_gap(slab, fixed[k])[0] <= 0.0:
            return False
    for k in range(len(shapes)):
        counts = (k < agents or k >= AGENTS) and shapes[k, BOX_TAG] != ABSENT
        if counts and box_gap(slab, shapes[k])[0] <= 0.0:
            return False
    for x, z in COLUMNS_M:
        dx = max(abs(slab[X] - x) - slab[HALF_X], 0.0)
        dz = max(abs(slab[Z] - z) - slab[HALF_Z], 0.0)
        if dx * dx + dz * dz <= COLUMN_RADIUS_M**2:
            return False
    return True
