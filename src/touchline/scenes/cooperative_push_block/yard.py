"""The yard: what stands in an area, how large and how heavy it is, and its colors."""

import numpy as np

from touchline.drawing.look import GREEN, ORANGE, PURPLE, WALL_COLOR, YELLOW
from touchline.drawing.tableau import Camera, box_shapes, floor_shapes, join, lowered
from touchline.physics.shapes import box, boxes
from touchline.physics.threads import Threads
from touchline.physics.upright.boxes import Body, BoxWorld
from touchline.physics.world import GRAVITY

AGENTS, BLOCKS = 3, 6
AGENT_KG, AGENT_DRAG = 10.0, 4.0
BLOCK_DRAG, BLOCK_HEIGHT_M = 0.5, 0.75

TAGS = ["wall", "agent", "goal", "blockSmall", "blockLarge", "blockVeryLarge"]
WALL, AGENT_TAG, GOAL_TAG, SMALL, LARGE, VERY_LARGE = range(6)
EDGE_M = {SMALL: 1.0, LARGE: 2.0, VERY_LARGE: 3.0}
MASS_KG = {SMALL: 10.0, LARGE: 100.0, VERY_LARGE: 150.0}
VALUE = {SMALL: 1.0, LARGE: 2.0, VERY_LARGE: 3.0}
"""What the group earns for a block in the goal."""
BLOCK_TAGS = (LARGE, VERY_LARGE, VERY_LARGE, SMALL, SMALL, LARGE)
"""The six blocks in the prefab's order, in which they are placed; they follow the agents."""
BLOCK_TAG = np.array(BLOCK_TAGS, np.float64)
BLOCK_VALUE = np.array([VALUE[tag] for tag in BLOCK_TAGS], np.float32)

FLOOR, GOAL = 0, 1
FIXED = boxes(
    box((0.0, -0.5, 0.0), (25.0, 1.0, 25.0)),
    box((0.0, 0.97, -10.5), (25.0, 3.0, 4.2995), GOAL_TAG),
    box((12.75, 2.0, 0.0), (0.5, 5.0, 26.0), WALL),
    box((-12.75, 2.0, 0.0), (0.5, 5.0, 26.0), WALL),
    box((0.0, 2.0, 12.75), (26.0, 5.0, 0.5), WALL),
    box((0.0, 2.0, -12.75), (26.0, 5.0, 0.5), WALL),
)
TRIGGER = -1.0
"""In place of a friction: these shapes never touch."""
NOWHERE_M = -100.0
"""Height before the first placing, so that no old place is in the way."""

GRAVITY_MPS2 = 1.5 * GRAVITY
"""Unity's default times the `gravityMultiplier` of the scene's `ProjectSettingsOverrides`."""

CAMERA = Camera(eye=(0.0, 25.0, -22.0), target=(0.0, 0.0, -1.2))
STATIC = join(
    floor_shapes(FIXED[0]),
    # The goal's box is higher than the agents, which would vanish in it.
    box_shapes(lowered(FIXED[1:2], 0.04), GREEN),
    box_shapes(lowered(FIXED[2:], 1.0), WALL_COLOR),
)
BLOCK_COLORS = {SMALL: YELLOW, LARGE: ORANGE, VERY_LARGE: PURPLE}


def new_world(num_areas: int, threads: Threads) -> BoxWorld:
    """Agents, then blocks, which turn when they are pushed off center; all still to be placed."""
    nowhere = (0.0, NOWHERE_M, 0.0)
    cube = box(nowhere, (1.0, 1.0, 1.0), AGENT_TAG)
    bodies = [Body(cube, AGENT_KG, AGENT_DRAG)] * AGENTS
    for tag in BLOCK_TAGS:
        size = (EDGE_M[tag], BLOCK_HEIGHT_M, EDGE_M[tag])
        block = box(nowhere, size, tag)
        bodies.append(Body(block, MASS_KG[tag], BLOCK_DRAG, turns=True))
    world = BoxWorld(num_areas, FIXED, bodies, [], GRAVITY_MPS2, threads)
    world.friction[:, :, GOAL] = TRIGGER
    return world
