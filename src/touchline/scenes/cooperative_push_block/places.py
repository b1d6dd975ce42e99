"""Where agents and blocks start."""

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
    Floats,
    X,
    Y,
    Z,
)
from touchline.physics.upright.boxes import Boxes, box_gap
from touchline.scenes.cooperative_push_block.yard import AGENTS, BLOCK_TAG, BLOCKS
from touchline.scenes.cube_agents import turn_to
from touchline.scenes.random import StreamArrays, draw

SPAWN_M, SPAWN_HEIGHT_M = 6.25, 1.0
"""Half the 25 m floor times the spawn margin of 0.5."""
CLEAR_M = (1.5, 0.01, 1.5)
"""Half extents of the flat box around a new place that must be free."""


@makes_arrays
def place(areas: NDArray[np.intp], streams: StreamArrays, world: Boxes) -> None:
    """Put agents, then blocks, where a flat box is free, turned at random, at rest 1 m up.

    An agent's old place is in the way, because it reaches up to that flat box; a block on the floor
    does not. The flat box is the same for all, so a very large block may overlap a neighbor; the
    contact rule parts them without a jolt.
    """
    slab = np.zeros(BOX_COLUMNS)
    slab[HALF_X], slab[HALF_Y], slab[HALF_Z] = CLEAR_M
    slab[Y] = SPAWN_HEIGHT_M
    slab[COS] = 1.0
    for area in areas:
        shapes = world.boxes[area]
        yaw = world.yaw[area]
        world.velocity[area] = 0.0
        for i in range(AGENTS + BLOCKS):
            if i >= AGENTS:  # it may have vanished in the goal
                shapes[i, BOX_TAG] = BLOCK_TAG[i - AGENTS]
            turn = 0.0
            while True:
                u, v, turn, _ = draw(streams, area)
                slab[X] = SPAWN_M * (2.0 * u - 1.0)
                slab[Z] = SPAWN_M * (2.0 * v - 1.0)
                if _is_free(slab, shapes):
                    break
            shapes[i, X] = slab[X]
            shapes[i, Y] = SPAWN_HEIGHT_M
            shapes[i, Z] = slab[Z]
            turn_to(2.0 * math.pi * turn, i, shapes, yaw)


@compiled
def _is_free(slab: Floats, shapes: Floats) -> bool:
    """Whether a box touches no body; no new place reaches walls or goal."""
    for k in range(len(shapes)):
        if shapes[k, BOX_TAG] != ABSENT and box_gap(slab, shapes[k])[0] <= 0.0:
            return False
    return True
